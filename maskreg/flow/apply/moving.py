"""Elements of a model's memory that change: where they are, what they are, and what they become."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from maskreg.codec.movers import find_movers
from maskreg.native import library


class Movers(NamedTuple):
    """Elements that change, all on one device.

    Attributes:
        at: int32 ``[k]``, their places, ascending; int64 in memory that is not contiguous.
        before: integers of the elements' width, ``[k]``: what they are.
        after: what they become.
    """

    at: torch.Tensor
    before: torch.Tensor
    after: torch.Tensor


def moved_between(values: torch.Tensor, result: torch.Tensor) -> Movers:
    """Where two blocks of integers differ; copies, so that the blocks' memory can be used again."""
    if values.device.type == "cpu" and values.element_size() == 2:
        places, codes = find_movers(values.numpy().view(np.uint16), result.numpy().view(np.uint16))
        at, after = torch.from_numpy(places.view(np.int32)), torch.from_numpy(codes.view(np.int16))
    else:
        at = (values != result).nonzero()[:, 0].int()
        after = result[at]
    return Movers(at, values[at], after)


class Patch(NamedTuple):
    """What changes of a tensor.

    Attributes:
        name: of the tensor.
        memory: integers of the elements' width, one-dimensional, in the model's own memory.
        movers: the elements of it that change.
    """

    name: str
    memory: torch.Tensor
    movers: Movers

    def exchange(self) -> int:
        """Write what the elements become, in order, while they are what they are expected to be before.

        Returns how many were written: all, or fewer where one of those that follow is another.
        """
        at, before, after = self.movers
        fits = self.memory.element_size() == 2 and at.dtype == torch.int32 and self.memory.device.type == "cpu"
        if fits and (compiled := library()):
            old, new = (compiled.read(each.numpy().view(np.uint16)) for each in (before, after))
            memory = compiled.write(self.memory.numpy().view(np.uint16))
            written: int = compiled.lib.maskreg_exchange(memory, compiled.read(at.numpy()), old, new, at.numel())
            return written
        if not torch.equal(self.memory[at], before):
            return 0
        self.memory[at] = after
        return at.numel()

    def back(self, count: int) -> Patch:
        """The patch that takes the first so many elements back."""
        at, before, after = (each[:count] for each in self.movers)
        return self._replace(movers=Movers(at, after, before))


def patch_of(name: str, bits: torch.Tensor, start: int, movers: Movers) -> Patch:
    """The patch of a tensor whose bits are a view of the model's memory; places count from its element ``start``."""
    if bits.is_contiguous():
        return Patch(name, bits.view(-1)[start:], movers)
    # Places among all elements that the view's memory has, from its first to its last.
    index = torch.unravel_index(movers.at.long() + start, bits.shape)
    at = sum((each * stride for each, stride in zip(index, bits.stride(), strict=True)), torch.zeros_like(index[0]))
    extent = 1 + sum((size - 1) * stride for size, stride in zip(bits.shape, bits.stride(), strict=True))
    return Patch(name, bits.as_strided((extent,), (1,)), movers._replace(at=at))

"""Elements of a model's memory that change: where they are, what they are, and what they become.

Blocks that are coded are worked out on the CPU like this, without a copy, leaf hashes last::

    block --link 1--> movers --link 2--> movers of both        leaves right?

That the result is right says that the block was what the first link applies to, and that each link was whole. Movers
that another process has worked out are checked in the same way, and have to replace what they replaced there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from maskreg.codec.base import Codes, Movers
from maskreg.codec.movers import NONE, find_movers
from maskreg.errors import CorruptError, WrongCheckpointError
from maskreg.flow.apply.blocks import Blocks
from maskreg.flow.apply.shared_swaps import Swaps, SwapsByBlock
from maskreg.flow.hashing import hashes_after
from maskreg.native import library
from maskreg.parallel import Buffers
from maskreg.tensors.bus import on_device
from maskreg.tensors.leaves import first_difference
from maskreg.update.route import Route, SpanRoute

QUIET = "follow with the model while nothing else writes to it"
"""What to do where a model changed beside its patches."""


def swaps_between(values: torch.Tensor, result: torch.Tensor) -> Swaps:
    """Where two blocks of integers differ; copies, so that the blocks' memory can be used again."""
    if values.device.type == "cpu" and values.element_size() == 2:
        places, codes = find_movers(values.numpy().view(np.uint16), result.numpy().view(np.uint16))
        at, after = torch.from_numpy(places.view(np.int32)), torch.from_numpy(codes.view(np.int16))
    else:
        at = (values != result).nonzero()[:, 0].int()
        after = result[at]
    return Swaps(at, values[at], after)


class Changes:
    """Works out what changes of blocks at hand. Safe to call from several threads."""

    def __init__(self, route: Route, *, most: int, moved: SwapsByBlock | None = None) -> None:
        """Prepare for calls with at most so many blocks.

        ``moved``: swaps of earlier work. Those that fit are used; new ones are added.
        """
        self._moved = {} if moved is None else moved
        self._blocks = Blocks(route, write=False, most=most)
        self._codecs = [delta.codec for delta in route.deltas]
        self._buffers = Buffers()

    def __call__(self, spans: Sequence[SpanRoute], at_hand: Sequence[torch.Tensor]) -> list[Swaps]:
        """What changes, on the device of the blocks, which are as :class:`Blocks` takes them.

        Raises:
            WrongCheckpointError: a block is not what the first delta applies to.
            CorruptError: a delta is damaged.
        """
        steps = [step for span in spans for step in span.steps]
        if on_device(at_hand[0]) or any(step.stored for step in steps) or not any(step.coded for step in steps):
            results = self._blocks(spans, at_hand)
            return [swaps_between(*pair) for pair in zip(at_hand, results, strict=True)]
        return [self._coded(*pair) for pair in zip(spans, at_hand, strict=True)]

    def _coded(self, span: SpanRoute, at_hand: torch.Tensor) -> Swaps:
        codes = at_hand.numpy().view(np.uint16)
        if (known := self._moved.get((span.name, span.start))) is not None and _fits(known, span, codes):
            return known
        steps = [(codec, step.coded) for codec, step in zip(self._codecs, span.steps, strict=True) if step.coded]
        movers = NONE
        try:
            for codec, coded in steps:
                movers = codec.movers(codes, coded(self._buffers).data, movers)
        except CorruptError:
            self._blocks([span], [at_hand])  # raises what is wrong: another block at hand looks like damage too
            raise
        hashes, before = hashes_after(codes, movers)
        if first_difference(hashes, span.stations[-1]) is not None:
            self._blocks([span], [at_hand])  # likewise
            raise WrongCheckpointError(span.name, "something else wrote to it while it was read", hint=QUIET)
        places, after = movers.positions.view(np.int32), movers.codes.view(np.int16)
        swaps = Swaps(*map(torch.from_numpy, (places, before.view(np.int16), after)))
        self._moved[span.name, span.start] = swaps
        return swaps


def _fits(swaps: Swaps, span: SpanRoute, codes: Codes) -> bool:
    """Check that a block is the source of the links, and that the swaps give their target."""
    movers = Movers(swaps.at.numpy().view(np.uint32), swaps.after.numpy().view(np.uint16))
    places = movers.positions
    if places.size and (places[-1] >= codes.size or (places[1:] <= places[:-1]).any()):
        return False
    hashes, before = hashes_after(codes, movers)
    is_right = first_difference(hashes, span.stations[-1]) is None
    return is_right and np.array_equal(before, swaps.before.numpy().view(np.uint16))


class Patch(NamedTuple):
    """What changes of a tensor.

    Attributes:
        name: of the tensor.
        memory: integers of the elements' width, one-dimensional, in the model's own memory.
        movers: the elements of it that change.
    """

    name: str
    memory: torch.Tensor
    movers: Swaps

    def exchange(self) -> int:
        """Write what the elements become, in order, while they are what they are expected to be before.

        Returns how many were written: all, or fewer where one of those that follow is another.
        """
        at, before, after = self.movers
        fits = self.memory.element_size() == 2 and at.dtype == torch.int32 and self.memory.device.type == "cpu"
        if fits:
            compiled = library()
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
        return self._replace(movers=Swaps(at, after, before))


def patch_of(name: str, bits: torch.Tensor, start: int, movers: Swaps) -> Patch:
    """The patch of a tensor whose bits are a view of the model's memory; places count from its element ``start``."""
    if bits.is_contiguous():
        return Patch(name, bits.view(-1)[start:], movers)
    # Places among all elements that the view's memory has, from its first to its last.
    index = torch.unravel_index(movers.at.long() + start, bits.shape)
    at = sum((each * stride for each, stride in zip(index, bits.stride(), strict=True)), torch.zeros_like(index[0]))
    extent = 1 + sum((size - 1) * stride for size, stride in zip(bits.shape, bits.stride(), strict=True))
    return Patch(name, bits.as_strided((extent,), (1,)), movers._replace(at=at))

"""Coordinates outside a mask: kept, put back, and checked."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from maskreg.digest import fingerprint, leaf_hashes
from maskreg.errors import CorruptError
from maskreg.live.memory import CODES
from maskreg.live.shards import local_of
from maskreg.train.optim.bits import Bits
from maskreg.train.optim.refusals import refuse_sparse


class Frozen(ABC):
    """The frozen coordinates of one parameter.

    Attributes:
        name: as the running model calls it.
        parameter: maybe sharded; then this is about what is here.
        shape: of the whole parameter, then.
    """

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.shape = tuple(parameter.shape)

    @abstractmethod
    def check(self) -> None:
        """Compare with what is there now.

        Raises:
            CorruptError: it differs.
        """


class Fingerprinted(Frozen):
    """What frozen coordinates were, as a fingerprint."""

    def __init__(self, name: str, parameter: torch.Tensor, bits: Bits) -> None:
        """Fingerprint what lies outside the mask, a block at a time."""
        super().__init__(name, parameter)
        self._bits = bits
        self._before = self._now()

    def check(self) -> None:
        """See :class:`Frozen`."""
        if self._now() != self._before:
            raise _moved(self.name, "some coordinates")

    def _now(self) -> str:
        flat = _codes_of(self.parameter)
        leaves = [
            leaf_hashes(flat[part.coordinates].index_select(0, places).cpu().numpy())
            for part, places in self._bits.complement().each()
        ]
        return fingerprint(np.concatenate(leaves)) if leaves else ""


class Kept(Frozen):
    """A copy of frozen coordinates, packed."""

    def __init__(self, name: str, parameter: torch.Tensor, bits: Bits) -> None:
        """Copy what lies outside the mask."""
        super().__init__(name, parameter)
        self._frozen = bits.complement()
        flat = _codes_of(parameter)
        self._values = torch.empty(self._frozen.nnz, dtype=flat.dtype, device=flat.device)
        for part, places in self._frozen.each():
            torch.index_select(flat[part.coordinates], 0, places, out=self._values[part.entries])

    def restore(self) -> None:
        """Put the copy back."""
        weights = local_of(self.parameter.detach())
        flat = _codes_of(self.parameter)
        for part, places in self._frozen.each():
            flat[part.coordinates].index_copy_(0, places, self._values[part.entries])
        if not weights.is_contiguous():
            weights.copy_(flat.view(weights.dtype).reshape(weights.shape))

    def mask_gradient(self) -> None:
        """Make the gradient of frozen coordinates 0, whatever it is.

        Raises:
            UsageError: it is a sparse one.
        """
        grad = self.parameter.grad
        if grad is None:
            return
        refuse_sparse(self.name, grad)
        here = local_of(grad)
        flat = here.reshape(-1) if here.is_contiguous() else here.contiguous().reshape(-1)
        for part, places in self._frozen.each():
            flat[part.coordinates].index_fill_(0, places, 0)
        if not here.is_contiguous():
            here.copy_(flat.reshape(here.shape))

    def check(self) -> None:
        """See :class:`Frozen`."""
        flat = _codes_of(self.parameter)
        for part, places in self._frozen.each():
            differ = flat[part.coordinates].index_select(0, places) != self._values[part.entries]
            if differ.any():
                place = part.coordinates.start + int(places[differ][0])
                index = np.unravel_index(place, tuple(local_of(self.parameter).shape))
                raise _moved(self.name, f"coordinate {[int(i) for i in index]}")


def _codes_of(parameter: torch.Tensor) -> torch.Tensor:
    """The bits of the part of a parameter that is here, as integers, flat; sharing memory where it is contiguous."""
    weights = local_of(parameter.detach())
    return weights.contiguous().reshape(-1).view(CODES[weights.element_size()])


def _moved(name: str, which: str) -> CorruptError:
    return CorruptError(
        name,
        f"{which} outside the mask changed since it was attached",
        hint="see what else writes to the weights: another optimizer, an average of weights, a loaded checkpoint",
    )

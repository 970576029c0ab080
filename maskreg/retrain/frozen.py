"""Coordinates outside a mask: kept, put back, and checked."""

from __future__ import annotations

import numpy as np
import torch

from maskreg.digest import fingerprint, leaf_hashes
from maskreg.errors import CorruptError
from maskreg.live.shards import local_of
from maskreg.optim.bits import Bits
from maskreg.optim.bound import refuse_sparse

_CODES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Fingerprinted:
    """What frozen coordinates of one parameter were, as a fingerprint.

    Attributes:
        name: as the running model calls it.
        parameter: maybe sharded; then this is about what is here.
        shape: of the whole parameter, then.
    """

    def __init__(self, name: str, parameter: torch.Tensor, bits: Bits) -> None:
        """Fingerprint what lies outside the mask, a block at a time."""
        self.name = name
        self.parameter = parameter
        self.shape = tuple(parameter.shape)
        self._bits = bits
        self._before = self._now()

    def check(self) -> None:
        """Compare with what is there now.

        Raises:
            CorruptError: it differs.
        """
        if self._now() != self._before:
            raise _moved(self.name, "some coordinates")

    def _now(self) -> str:
        flat = codes_of(self.parameter)
        leaves = [
            leaf_hashes(flat[part.coordinates].index_select(0, places).cpu().numpy())
            for part, places in self._bits.complement().each()
        ]
        return fingerprint(np.concatenate(leaves)) if leaves else ""


class Kept:
    """A copy of the frozen coordinates of one parameter, packed.

    Attributes:
        name: as the running model calls it.
        parameter: maybe sharded; then this is about what is here.
        shape: of the whole parameter, then.
    """

    def __init__(self, name: str, parameter: torch.Tensor, bits: Bits) -> None:
        """Copy what lies outside the mask."""
        self.name = name
        self.parameter = parameter
        self.shape = tuple(parameter.shape)
        self._frozen = bits.complement()
        flat = codes_of(parameter)
        self._values = torch.empty(self._frozen.nnz, dtype=flat.dtype, device=flat.device)
        for part, places in self._frozen.each():
            torch.index_select(flat[part.coordinates], 0, places, out=self._values[part.entries])

    @property
    def nbytes(self) -> int:
        """Bytes that the copy and its places take."""
        return self._values.nbytes + self._frozen.nbytes

    def restore(self) -> None:
        """Put the copy back."""
        weights = local_of(self.parameter.detach())
        flat = codes_of(self.parameter)
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
        """Compare with what is there now.

        Raises:
            CorruptError: it differs.
        """
        flat = codes_of(self.parameter)
        for part, places in self._frozen.each():
            differ = flat[part.coordinates].index_select(0, places) != self._values[part.entries]
            if differ.any():
                place = part.coordinates.start + int(places[differ][0])
                index = np.unravel_index(place, tuple(local_of(self.parameter).shape))
                raise _moved(self.name, f"coordinate {[int(i) for i in index]}")


def codes_of(parameter: torch.Tensor) -> torch.Tensor:
    """The bits of the part of a parameter that is here, as integers, flat; sharing memory where it is contiguous."""
    weights = local_of(parameter.detach())
    return weights.contiguous().reshape(-1).view(_CODES[weights.element_size()])


def _moved(name: str, which: str) -> CorruptError:
    return CorruptError(
        name,
        f"{which} outside the mask changed since it was attached",
        hint="see what else writes to the weights: another optimizer, an average of weights, a loaded checkpoint",
    )

"""Coordinates outside a mask: copied, restored, and checked."""

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
    """The frozen coordinates of the local part of one parameter.

    Attributes:
        name: in the running model.
        parameter: may be sharded.
        shape: of the whole parameter when the mask was attached.
    """

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.shape = tuple(parameter.shape)

    @abstractmethod
    def check(self) -> None:
        """Compare with the parameter as it is now.

        Raises:
            CorruptError: the bits differ.
        """


class Fingerprinted(Frozen):
    """A fingerprint of frozen coordinates: 16 bytes, which can be checked but not restored."""

    def __init__(self, name: str, parameter: torch.Tensor, bits: Bits) -> None:
        """Fingerprint what lies outside the mask, a slice at a time."""
        super().__init__(name, parameter)
        self._bits = bits
        self._before = self._fingerprint()

    def check(self) -> None:
        """See :class:`Frozen`."""
        if self._fingerprint() != self._before:
            raise _changed(self.name, "some coordinates")

    def _fingerprint(self) -> str:
        flat = _codes_of(self.parameter)
        leaves = [
            leaf_hashes(flat[part.coordinates].index_select(0, offsets).cpu().numpy())
            for part, offsets in self._bits.complement().masked_slices()
        ]
        return fingerprint(np.concatenate(leaves)) if leaves else ""


class Copied(Frozen):
    """A packed copy of frozen coordinates, which can be restored after a step."""

    def __init__(self, name: str, parameter: torch.Tensor, bits: Bits) -> None:
        """Copy what lies outside the mask."""
        super().__init__(name, parameter)
        self._frozen = bits.complement()
        flat = _codes_of(parameter)
        self._values = torch.empty(self._frozen.nnz, dtype=flat.dtype, device=flat.device)
        self._attached = Fingerprinted(name, parameter, bits)
        self.copy()

    def copy(self) -> None:
        """Copy the coordinates as they are now, so that restoring undoes the next step and nothing before it.

        Weights may have been loaded or averaged since the last step: they stay, and only :meth:`check` reports them.
        """
        flat = _codes_of(self.parameter)
        for part, offsets in self._frozen.masked_slices():
            torch.index_select(flat[part.coordinates], 0, offsets, out=self._values[part.entries])

    def restore(self) -> None:
        """Write the copy back."""
        weights = local_of(self.parameter.detach())
        flat = _codes_of(self.parameter)
        for part, offsets in self._frozen.masked_slices():
            flat[part.coordinates].index_copy_(0, offsets, self._values[part.entries])
        if not weights.is_contiguous():
            weights.copy_(flat.view(weights.dtype).reshape(weights.shape))

    def mask_gradient(self) -> None:
        """Set the gradient of frozen coordinates to 0, NaNs included.

        Raises:
            UsageError: the gradient is sparse.
        """
        grad = self.parameter.grad
        if grad is None:
            return
        refuse_sparse(self.name, grad)
        local = local_of(grad)
        flat = local.reshape(-1) if local.is_contiguous() else local.contiguous().reshape(-1)
        for part, offsets in self._frozen.masked_slices():
            flat[part.coordinates].index_fill_(0, offsets, 0)
        if not local.is_contiguous():
            local.copy_(flat.reshape(local.shape))

    def check(self) -> None:
        """See :class:`Frozen`; names the first coordinate."""
        flat = _codes_of(self.parameter)
        for part, offsets in self._frozen.masked_slices():
            differ = flat[part.coordinates].index_select(0, offsets) != self._values[part.entries]
            if differ.any():
                coordinate = part.coordinates.start + int(offsets[differ][0])
                index = np.unravel_index(coordinate, tuple(local_of(self.parameter).shape))
                raise _changed(self.name, f"coordinate {[int(i) for i in index]}")
        self._attached.check()


def _codes_of(parameter: torch.Tensor) -> torch.Tensor:
    """The bits of the local part of a parameter, as integers, flat; sharing memory if it is contiguous."""
    weights = local_of(parameter.detach())
    return weights.contiguous().reshape(-1).view(CODES[weights.element_size()])


def _changed(name: str, subject: str) -> CorruptError:
    return CorruptError(
        name,
        f"{subject} outside the mask changed since it was attached",
        hint="see what else writes to the weights: another optimizer, a weight average, a loaded checkpoint;"
        " after loading weights on purpose, detach the mask and attach it again",
    )

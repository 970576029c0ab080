"""Comparing two blocks of bf16 codes, with kernels of native/src/diff.c."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.mask import pack, packed_bytes
from maskreg.native import library
from maskreg.tensors.cast import is_finite, to_fp32
from maskreg.tensors.rules import Exact

if TYPE_CHECKING:
    Codes = npt.NDArray[np.uint16]

_TILE = 1 << 16
"""Coordinates whose float64 differences fit a core's cache."""

_MANTISSA = 0x007F
_SUMS = 16
"""Sums that are added up side by side, as vectors do; their order is part of the result."""


class Comparison(NamedTuple):
    """How two blocks differ.

    Attributes:
        packed: mask of the coordinates that moved, uint8 ``[packed_bytes(n)]``.
        nnz: how many those are.
        differing: coordinates whose bits differ.
        nonfinite: pairs of which a side is NaN or infinite, which have no energy.
        energy: see :func:`energy_of`.
    """

    packed: npt.NDArray[np.uint8]
    nnz: int
    differing: int
    nonfinite: int
    energy: float


class Comparing:
    """Compares a block under the exact rule, piece by piece, each while it is in the core's cache."""

    def __init__(self, packed: npt.NDArray[np.uint8]) -> None:
        """Begin; ``packed``, uint8 ``[packed_bytes(n)]``, becomes the mask."""
        self._packed = packed
        self._counts, self._sums = np.zeros(3, np.int64), np.zeros(_SUMS)
        self._done = 0

    def add(self, source: Codes, target: Codes) -> None:
        """Compare the next coordinates: a multiple of 64, except in the last piece.

        Args:
            source: bf16 codes, uint16 ``[m]``.
            target: likewise.
        """
        packed = self._packed[self._done // 8 :][: packed_bytes(source.size)]
        self._done += source.size
        if compiled := library():
            compiled.lib.maskreg_compare(
                compiled.read(source),
                compiled.read(target),
                source.size,
                compiled.write(packed),
                compiled.write(self._counts),
                compiled.write(self._sums),
            )
            return
        moved = Exact().moved(source, target)
        packed[:] = pack(moved)
        differing = int(np.count_nonzero(source != target))
        self._counts += np.array([int(np.count_nonzero(moved)), differing, nonfinite_in(source, target)])
        _add_energy(source, target, self._sums)

    @property
    def result(self) -> Comparison:
        """How the pieces so far differ."""
        nnz, differing, nonfinite = self._counts.tolist()
        return Comparison(self._packed, nnz, differing, nonfinite, sum(self._sums.tolist()))


def compare(source: Codes, target: Codes, packed: npt.NDArray[np.uint8]) -> Comparison:
    """Compare two blocks of bf16 codes, uint16 ``[n]``, under the exact rule; ``packed`` becomes the mask."""
    comparing = Comparing(packed)
    comparing.add(source, target)
    return comparing.result


def nonfinite_in(source: Codes, target: Codes) -> int:
    """Pairs of which a side is NaN or infinite.

    Args:
        source: bf16 codes, uint16 ``[n]``.
        target: likewise.
    """
    return source.size - int(np.count_nonzero(is_finite(source) & is_finite(target)))


def nans_and_infinities(codes: Codes) -> tuple[int, int]:
    """How many bf16 codes are NaN, and how many are infinite."""
    special = codes[~is_finite(codes)]
    nans = int(np.count_nonzero(special & _MANTISSA))
    return nans, special.size - nans


def energy_of(source: Codes, target: Codes) -> float:
    """Sum of squared differences over pairs of finite bf16 numbers, in float64 and in a fixed order.

    Pair ``i`` is added to sum ``i mod 16``, and the sums to each other at the end.

    Args:
        source: bf16 codes, uint16 ``[n]``.
        target: likewise.
    """
    sums = np.zeros(_SUMS)
    if compiled := library():
        compiled.lib.maskreg_energy(compiled.read(source), compiled.read(target), source.size, compiled.write(sums))
    else:
        _add_energy(source, target, sums)
    return sum(sums.tolist())


def _add_energy(source: Codes, target: Codes, sums: npt.NDArray[np.float64]) -> None:
    for start in range(0, source.size, _TILE):
        own = slice(start, start + _TILE)
        sums[:] = np.add.reduce(np.vstack([sums, _squares(source[own], target[own])]), axis=0)


def _squares(source: Codes, target: Codes) -> npt.NDArray[np.float64]:
    # All pairs, not only moved ones: the energy is a property of the pair, whatever the rule.
    finite = is_finite(source) & is_finite(target)
    change = to_fp32(np.where(finite, target, 0)).astype(np.float64) - to_fp32(np.where(finite, source, 0))
    squares = np.zeros(-(-change.size // _SUMS) * _SUMS)
    np.square(change, out=squares[: change.size])
    return squares.reshape(-1, _SUMS)

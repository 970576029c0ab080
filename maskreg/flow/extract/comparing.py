"""Comparing two blocks of bf16 codes, with kernels of native/src/diff.c."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from maskreg.mask import pack
from maskreg.native import library
from maskreg.rules.exact import Exact
from maskreg.tensors.cast import is_finite, to_fp32

if TYPE_CHECKING:
    Codes = npt.NDArray[np.uint16]

_TILE = 1 << 16
"""Coordinates whose float64 differences fit a core's cache."""

_SUMS = 16
"""Sums that are added up side by side, as vectors do; their order is part of the result."""


def pack_moved(source: Codes, target: Codes, packed: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Fill ``packed`` with the mask of the exact rule; returns how many coordinates moved, and how many differ.

    Args:
        source: bf16 codes, uint16 ``[n]``.
        target: likewise.
        packed: uint8 ``[packed_bytes(n)]``.
    """
    if compiled := library():
        counts = np.zeros(2, np.int64)
        compiled.lib.maskreg_diff(
            compiled.read(source), compiled.read(target), source.size, compiled.write(packed), compiled.write(counts)
        )
        nnz, differing = counts.tolist()
        return nnz, differing
    moved = Exact().moved(source, target)
    packed[:] = pack(moved)
    return int(np.count_nonzero(moved)), int(np.count_nonzero(source != target))


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
        for start in range(0, source.size, _TILE):
            own = slice(start, start + _TILE)
            sums = np.add.reduce(np.vstack([sums, _squares(source[own], target[own])]), axis=0)
    return sum(sums.tolist())


def _squares(source: Codes, target: Codes) -> npt.NDArray[np.float64]:
    # All pairs, not only moved ones: the energy is a property of the pair, whatever the rule.
    finite = is_finite(source) & is_finite(target)
    change = to_fp32(np.where(finite, target, 0)).astype(np.float64) - to_fp32(np.where(finite, source, 0))
    squares = np.zeros(-(-change.size // _SUMS) * _SUMS)
    np.square(change, out=squares[: change.size])
    return squares.reshape(-1, _SUMS)

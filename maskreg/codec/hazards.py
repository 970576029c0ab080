"""Hazards: how likely coordinates are to move, so that the way to the next *mover* costs one number.

A coordinate that moves with probability p has the hazard -log2(1 - p), in units of 1/8,192. Hazards add up:

    P(nothing moves within hazard h) = 2^(-h / 8192) = survival(h) / 2^28

whichever coordinates the hazard is made of. So a number u below 2^28, taken from a coder's state, says where the next
mover is, and a decoder finds it by adding up hazards instead of asking coordinate by coordinate:

    hazards 3 3 3 3 3000 3 3 3, survival(12) > u >= survival(3012): coordinate 4 moves

All coordinates of a class have one of 61 hazards, four to the octave. They are known by their index. One binade up,
half as many coordinates move, so an index is most likely 4 less than that of the class before. The difference from
that is stored as a Rice code, and :func:`choose_indexes` weighs its bits against those of the movers.

    moved    712 of 1,664    730 of 3,299    690 of 6,400     hazards -log2(1 - p) * 8,192: 6,601, 2,953, 1,348
    indexes  51 (6,888)      46 (2,896)      42 (1,448)       47 and 42 were expected: -1, 0
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import Reader
from maskreg.codec.ulp_steps import Counts

Indexes = npt.NDArray[np.uint8]
"""Of hazards, by class."""

OCTAVE = 1 << 13
"""Hazard over which the probability that nothing moves halves."""

LIMIT = 8 * OCTAVE
"""Hazard that one number covers at most; longer ways take several."""

SURVIVAL_BITS = 28
"""A survival of 1 is 1 << SURVIVAL_BITS."""

MOST_INDEX = 60
"""The index of the highest hazard."""

HAZARDS: npt.NDArray[np.uint16] = np.array([*(int(2 ** (index / 4)) for index in range(MOST_INDEX)), 32767], np.uint16)
"""uint16 ``[61]``, by index: 2^(index / 4) rounded down (p = .00008 for the first, .94 for the last)."""

_COARSE, _FINE = 128, 64
_HALF_BITS = 31

POWERS: npt.NDArray[np.uint32] = np.rint(
    np.exp2(_HALF_BITS - np.concatenate([np.arange(_COARSE) / _COARSE, np.arange(_FINE) / OCTAVE]))
).astype(np.uint32)
"""uint32 ``[192]``, rounded to the nearest: 2^31 * 2^(-i/128) for i < 128, then 2^31 * 2^(-j/8192) for j < 64."""

_POWERS: list[int] = POWERS.tolist()

_INDEXES = range(MOST_INDEX + 1)
_INDEX_BITS, _PLAIN_BITS = 6, 2

_PROBABILITIES = -np.expm1(HAZARDS * (-np.log(2) / OCTAVE))
_COSTS = np.stack([-np.log2(_PROBABILITIES), HAZARDS / OCTAVE])
"""Bits of a coordinate that moves, and of one that does not, by index."""


def survival(hazard: int) -> int:
    """2^28 times the probability that nothing moves within a hazard of at most :data:`LIMIT`; falls strictly.

    With h = 8192 o + 64 i + j, it is the product of the powers i and j, shifted down by 34 + o bits.
    """
    coarse, fine = hazard >> 6 & _COARSE - 1, hazard & _FINE - 1
    return _POWERS[coarse] * _POWERS[_COARSE + fine] >> 2 * _HALF_BITS - SURVIVAL_BITS + (hazard >> 13)


def hazard_of(number: int) -> int:
    """The least hazard whose survival is no more than a number of at least ``survival(LIMIT)``."""
    low, high = 0, LIMIT
    while low < high:
        middle = low + high >> 1
        low, high = (low, middle) if survival(middle) <= number else (middle + 1, high)
    return low


_FALL = 4
"""By how much an index is expected to be less than that of the class before."""

_RESIDUALS = np.array([[index - max(before - _FALL, 0) for index in _INDEXES] for before in _INDEXES], np.int64)
"""Index less what is expected, by the index before and the index."""

_FOLDED = np.where(_RESIDUALS < 0, -2 * _RESIDUALS - 1, 2 * _RESIDUALS)

_USUAL_STEPS = (_FOLDED >> 2) + 3
"""Bits of a residual under a usual Rice parameter."""


def choose_indexes(moved: Counts, total: Counts) -> tuple[Indexes, float]:
    """Indexes of all classes up to the last in which anything moves, and the bits of where movers are.

    Each class in turn takes the index under which its coordinates and the residual are shortest. The best sequence, by
    dynamic programming, is no shorter by more than .01 %.

    Args:
        moved: int64 ``[classes]``, coordinates that move; at least one does.
        total: int64 ``[classes]``, all coordinates.
    """
    last = int(np.flatnonzero(moved)[-1])
    costs = np.stack([moved, total - moved], 1)[: last + 1] @ _COSTS
    path: list[int] = []
    for cost in costs:
        path.append(int((cost + _USUAL_STEPS[path[-1]] if path else cost).argmin()))
    return np.array(path, np.uint8), float(costs[np.arange(last + 1), path].sum())


def pack_indexes(indexes: Indexes) -> list[tuple[int, int]]:
    """Indexes as numbers of some bits: the first in 6, the Rice parameter in 2, a Rice code for each of the others.

    There are few, so this is faster than arrays.
    """
    path: list[int] = indexes.tolist()
    folded = [int(_FOLDED[before, index]) for before, index in itertools.pairwise(path)]
    plain = min(range(1 << _PLAIN_BITS), key=lambda plain: sum((value >> plain) + plain for value in folded))
    numbers = [(path[0], _INDEX_BITS), (plain, _PLAIN_BITS)]
    for value in folded:
        ones, low = value >> plain, value & (1 << plain) - 1
        numbers.append(((1 << ones) - 1 | low << ones + 1, ones + 1 + plain))
    return numbers


def unpack_indexes(reader: Reader, classes: int) -> Indexes | None:
    """Indexes of so many classes; None when they are invalid."""
    path, plain = [reader.fixed(_INDEX_BITS)], reader.fixed(_PLAIN_BITS)
    residuals = reader.rice(classes - 1, plain, MOST_INDEX)
    if residuals is None:
        return None
    for residual in residuals.tolist():
        path.append(max(path[-1] - _FALL, 0) + residual)
    return np.array(path, np.uint8) if min(path) >= 0 and max(path) <= MOST_INDEX else None

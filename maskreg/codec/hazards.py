"""Hazards: how likely coordinates are to move, so that the way to the next *mover* costs one number.

A coordinate that moves with probability p has the hazard -log2(1 - p), in units of 1/8,192. Hazards add up:

    P(nothing moves within hazard h) = 2^(-h / 8192) = survival(h) / 2^28

whichever coordinates the hazard is made of. So a number u below 2^28, taken from a coder's state, says where the next
mover is, and a decoder finds it by adding up hazards instead of asking coordinate by coordinate:

    hazards 3 3 3 3 3000 3 3 3, survival(12) > u >= survival(3012): coordinate 4 moves

All coordinates of a class have one of 61 hazards, four to the octave. They are known by their index. One binade up,
half as many coordinates move, so an index is most likely 4 less than the index of the class before. The difference from
that is stored as a Rice code, and :func:`choose_indexes` weighs its bits against the movers' bits.

    moved    712 of 1,664    730 of 3,299    690 of 6,400     hazards -log2(1 - p) * 8,192: 6,601, 2,953, 1,348
    indexes  51 (6,888)      46 (2,896)      42 (1,448)       47 and 42 were expected: -1, 0
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.codec.ulp_steps import Counts
from maskreg.native import Library

Numbers = npt.NDArray[np.int64]

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

LOGARITHM_BITS = 21
"""Logarithms to base 2 and bits are counted in 1 / 2^21, so that all machines choose alike."""

LOGARITHMS: npt.NDArray[np.int32] = np.floor(np.log2(1 + np.arange(257) / 256) * (1 << LOGARITHM_BITS)).astype(np.int32)
"""int32 ``[257]``: logarithms of 1 + i / 256, rounded down."""

_INDEXES = range(MOST_INDEX + 1)
_INDEX_BITS, _PLAIN_BITS = 6, 2
_FIXED_BITS = _INDEX_BITS + _PLAIN_BITS

_PROBABILITIES = -np.expm1(HAZARDS * (-np.log(2) / OCTAVE))
COSTS: Numbers = np.rint(np.stack([-np.log2(_PROBABILITIES), HAZARDS / OCTAVE]) * (1 << LOGARITHM_BITS)).astype(
    np.int64
)
"""int64 ``[2, 61]``: bits of a coordinate that moves, and of one that does not, by index."""


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
"""By how much an index is expected to be less than the index of the class before."""

_RESIDUALS = np.array([[index - max(before - _FALL, 0) for index in _INDEXES] for before in _INDEXES], np.int64)
"""Index less what is expected, by the index before and the index."""

_FOLDED = np.where(_RESIDUALS < 0, -2 * _RESIDUALS - 1, 2 * _RESIDUALS)

USUAL_STEPS: Numbers = (_FOLDED >> 2) + 3 << LOGARITHM_BITS
"""int64 ``[61, 61]``: bits of a residual under a usual Rice parameter, by the index before and the index."""


def weighed_logarithms(counts: Counts) -> Numbers:
    """Of each count of less than 2^31, c log2(c)."""
    counted = np.maximum(counts, 1)
    octave = np.frexp(counted)[1].astype(np.int64) - 1
    fraction = (counted << 31 - octave) - (1 << 31)
    index, rest = fraction >> 23, fraction >> 7 & 0xFFFF
    low = LOGARITHMS[index].astype(np.int64)
    logarithms = (octave << LOGARITHM_BITS) + low + ((LOGARITHMS[index + 1] - low) * rest >> 16)
    product: Numbers = counts * logarithms
    return product


@cache
def logarithms(compiled: Library) -> Any:
    """Pointer to :data:`LOGARITHMS`."""
    return compiled.read(LOGARITHMS)


def choose_indexes(moved: Counts, total: Counts) -> tuple[Indexes, int]:
    """Indexes of all classes up to the last in which anything moves, and how long it is to say where movers are.

    Each class in turn takes the index under which its coordinates and the residual are shortest. The best sequence, by
    dynamic programming, is no shorter by more than .01 %.

    ``moved``: int64 ``[classes]``, coordinates that move; at least one does. ``total``: int64 ``[classes]``, all
    coordinates.
    """
    last = int(np.flatnonzero(moved)[-1])
    costs = np.stack([moved, total - moved], 1)[: last + 1] @ COSTS
    path: list[int] = []
    for cost in costs:
        path.append(int((cost + USUAL_STEPS[path[-1]] if path else cost).argmin()))
    return np.array(path, np.uint8), int(costs[np.arange(last + 1), path].sum())


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


def unpack_indexes(packed: int, classes: int) -> tuple[Indexes, int] | None:
    """Indexes of so many classes, from the lowest bits on, and how many bits they take; None when they are invalid."""
    path, plain, at = [packed & (1 << _INDEX_BITS) - 1], packed >> _INDEX_BITS & (1 << _PLAIN_BITS) - 1, _FIXED_BITS
    for _ in range(classes - 1):
        rest = packed >> at
        ones = (~rest & rest + 1).bit_length() - 1
        folded = ones << plain | rest >> ones + 1 & (1 << plain) - 1
        path.append(max(path[-1] - _FALL, 0) + (folded >> 1 ^ -(folded & 1)))
        at += ones + 1 + plain
        if not 0 <= path[-1] <= MOST_INDEX:
            return None
    return (np.array(path, np.uint8), at) if path[0] <= MOST_INDEX else None

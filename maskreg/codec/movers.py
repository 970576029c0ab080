"""Coding the movers of a sub-block in which few coordinates move: where they are, and how far each one moves.

One coder, an rANS state of 64 bits (J. Duda, arXiv:1311.2540), takes everything in turn. Decoding::

    reached = 0                                                   hazard of all that is decoded
    loop:
        u = floor(state / 2) % 2^28, and the sign is state % 2
        if u < survival(LIMIT): take [0, survival(LIMIT)); reached += LIMIT                      a long wait goes on
        else: k = the first coordinate with after(k) - reached >= hazard_of(u)                   movers.py
              take [survival(after(k) - reached), survival(before(k) - reached)), limited to 0 .. LIMIT
              decode the ULP step of k; reached = after(k)
        where that lies beyond the end: take [0, survival(the hazard that is left)), and stop

    before(k), after(k)   hazards of all coordinates up to k, without and with its own
    take [a, b)           state = (b - a) * floor(state / 2^29) + u - a; below 2^32, a word of 32 bits is appended

The sign is one bit of the same number. The sign of a wait has no meaning.

Most movers move by one ULP and take this one number. Of the numbers of each mover, the highest ones say that it moves
by more; how many these are is the *share* of its class.

Then a second number follows, of 16 bits. A step of s ULPs has k = floor(log2(s)) bits below its highest bit. The number
says k, and the first of these bits, the *top* bit. The others are stored as they are, and so are the 16 bits of a
literal. Updates are about as large for every weight, so how likely a step is to end at some k depends on the binade
that it reaches, exponent + k. Of the steps that reach a binade, a share is *longer*, which means it reaches the next;
of the steps that end in it, a share has a top bit of 1.

    exponent 112, step 5 = 101b: longer in binade 113, ends in 114 with a top bit of 0; then the bit 1

Hazards: how likely coordinates are to move, so that the way to the next *mover* costs one number.

A coordinate that moves with probability p has the hazard -log2(1 - p), in units of 1/8,192. Hazards add up:

    P(nothing moves within hazard h) = 2^(-h / 8192) = survival(h) / 2^28

whichever coordinates the hazard is made of. So a number u below 2^28, taken from the coder's state, says where the next
mover is, and a decoder finds it by adding up hazards, without a decision for each coordinate:

    hazards 3 3 3 3 3000 3 3 3, survival(12) > u >= survival(3012): coordinate 4 moves

All coordinates of a class have one of 61 hazards, four to the octave. They are known by their index. One binade up,
half as many coordinates move, so an index is most likely 4 less than the index of the class before. The difference from
that is stored as a Rice code; the choice of hazards counts its bits, too. A share also has one of 61 indexes, three
for twice the odds.

    moved    712 of 1,664    730 of 3,299    690 of 6,400     hazards -log2(1 - p) * 8,192: 6,601, 2,953, 1,348
    indexes  51 (6,888)      46 (2,896)      42 (1,448)       47 and 42 were expected: -1, 0
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Bits, Codes, Movers
from maskreg.codec.ulp_steps import Counts
from maskreg.errors import CorruptError
from maskreg.native import Library, library
from maskreg.parallel import Buffers

Numbers = npt.NDArray[np.int64]

Indexes = npt.NDArray[np.uint8]
"""Of hazards or shares, by class."""

OCTAVE = 1 << 13
"""Hazard over which the probability that nothing moves halves."""

LIMIT = 8 * OCTAVE
"""Hazard that one number covers at most; longer ways take several."""

SURVIVAL_BITS = 28
"""A survival of 1 is 1 << SURVIVAL_BITS."""

MOST_INDEX = 60
"""The index of the highest hazard, and of the highest share."""

HAZARDS: npt.NDArray[np.uint16] = np.array([*(int(2 ** (index / 4)) for index in range(MOST_INDEX)), 32767], np.uint16)
"""uint16 ``[61]``, by index: 2^(index / 4) rounded down (p = .00008 for the first, .94 for the last)."""

SHARE_BITS = 16
"""A share of 1 is 1 << SHARE_BITS."""

_EVEN, _ODDS = 44, 3  # the index of a share of one half, and how many indexes double the odds

_FURTHER = 1 / (1 + np.exp2((_EVEN - np.arange(1, MOST_INDEX + 1)) / _ODDS))

SHARES: npt.NDArray[np.uint16] = np.rint(np.concatenate([[0], _FURTHER]) * (1 << SHARE_BITS)).astype(np.uint16)
"""uint16 ``[61]``, by index, in 1 / 2^16: 0, then shares with odds of 2^((index - 44) / 3)."""

_COARSE, _FINE = 128, 64
_HALF_BITS = 31

POWERS: npt.NDArray[np.uint32] = np.rint(
    np.exp2(_HALF_BITS - np.concatenate([np.arange(_COARSE) / _COARSE, np.arange(_FINE) / OCTAVE]))
).astype(np.uint32)
"""uint32 ``[192]``, rounded to the nearest: 2^31 * 2^(-i/128) for i < 128, then 2^31 * 2^(-j/8192) for j < 64."""

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

SHARE_COSTS: Numbers = np.concatenate(
    [[[1 << 38], [0]], np.rint(-np.log2([_FURTHER, 1 - _FURTHER]) * (1 << LOGARITHM_BITS)).astype(np.int64)], axis=1
)
"""int64 ``[2, 61]``: bits of a step that belongs to the share, and of one that does not, by index."""


def survival(hazard: int) -> int:
    """2^28 times the probability that nothing moves within a hazard of at most :data:`LIMIT`; falls strictly.

    With h = 8192 o + 64 i + j, it is the product of the powers i and j, shifted down by 34 + o bits.
    """
    coarse, fine = hazard >> 6 & _COARSE - 1, hazard & _FINE - 1
    return int(POWERS[coarse]) * int(POWERS[_COARSE + fine]) >> 2 * _HALF_BITS - SURVIVAL_BITS + (hazard >> 13)


_FALL = 4  # by how much an index is expected to be less than the index of the class before

_RESIDUALS = np.array([[index - max(before - _FALL, 0) for index in _INDEXES] for before in _INDEXES], np.int64)
"""Index less what is expected, by the index before and the index."""

_FOLDED = np.where(_RESIDUALS < 0, -2 * _RESIDUALS - 1, 2 * _RESIDUALS)

USUAL_STEPS: Numbers = (_FOLDED >> 2) + 3 << LOGARITHM_BITS
"""int64 ``[61, 61]``: bits of a residual under a usual Rice parameter, by the index before and the index."""


def pack_indexes(indexes: Indexes) -> tuple[int, int]:
    """Indexes from the lowest bits on, and how many bits they take; none take none.

    The first takes 6, the Rice parameter 2, each of the others a Rice code.
    """
    if not indexes.size:
        return 0, 0
    path: list[int] = indexes.tolist()
    folded = [int(_FOLDED[before, index]) for before, index in itertools.pairwise(path)]
    plain = min(range(1 << _PLAIN_BITS), key=lambda plain: sum((value >> plain) + plain for value in folded))
    packed, at = path[0] | plain << _INDEX_BITS, _FIXED_BITS
    for value in folded:
        ones, low = value >> plain, value & (1 << plain) - 1
        packed |= ((1 << ones) - 1 | low << ones + 1) << at
        at += ones + 1 + plain
    return packed, at


def unpack_indexes(packed: int, count: int) -> tuple[Indexes, int] | None:
    """So many indexes, from the lowest bits on, and how many bits they take; None when they are invalid."""
    if not count:
        return np.empty(0, np.uint8), 0
    path, plain, at = [packed & (1 << _INDEX_BITS) - 1], packed >> _INDEX_BITS & (1 << _PLAIN_BITS) - 1, _FIXED_BITS
    for _ in range(count - 1):
        rest = packed >> at
        ones = (~rest & rest + 1).bit_length() - 1
        folded = ones << plain | rest >> ones + 1 & (1 << plain) - 1
        path.append(max(path[-1] - _FALL, 0) + (folded >> 1 ^ -(folded & 1)))
        at += ones + 1 + plain
        if not 0 <= path[-1] <= MOST_INDEX:
            return None
    return (np.array(path, np.uint8), at) if path[0] <= MOST_INDEX else None


STATE_BYTES = 8
"""Bytes of the state with which a sub-block begins."""

CLASSES = 16
"""Classes of exponents."""

BINADES_OF_STEP = 15
"""Binades in which a step can end, from its own on; a literal, whose step does not count, has this number."""

BINADES = CLASSES + BINADES_OF_STEP - 2
"""Binades that a step of more than one ULP can reach: from 1 above the first class to 14 above the last."""

LIKELY_LONGER, LIKELY_TOP = 39, 42
"""Indexes of the shares of binades that a model does not list."""

NONE = Movers(np.empty(0, np.uint32), np.empty(0, np.uint16))
"""No movers."""

_BEYOND = 4  # movers more than there are, which finding them can write

_BUFFERS = Buffers()


class Hazards(NamedTuple):
    """How likely the coordinates of a block are to move.

    Attributes:
        first: the exponent of the first class, which has all lower ones too; the last class has all higher ones.
        by_class: uint16 ``[16]``, at most 32,767; 0 where nothing moves.
        shares: uint16 ``[16]``, by class: of movers that move by more than one ULP, in 1 / 2^16; 0 where none does.
        longer: uint16 ``[29]``, by binade, from the one above the first class on: share of steps that go on.
        tops: uint16 ``[29]``, likewise: share of the steps that end there with a top bit of 1.
    """

    first: int
    by_class: npt.NDArray[np.uint16]
    shares: npt.NDArray[np.uint16]
    longer: npt.NDArray[np.uint16]
    tops: npt.NDArray[np.uint16]


def encode_movers(source: Codes, movers: Movers, hazards: Hazards, length: int) -> list[bytes]:
    """Code a block, whose movers have hazards above 0: of each sub-block, the state and the words.

    ``length``: coordinates of each sub-block but the last, which has the rest.
    """
    compiled = library()
    structure, _arrays = _structure(compiled, hazards)
    own, count = movers_structure(compiled, movers), movers.positions.size
    sizes = np.empty(-(-source.size // length), np.int64)
    room = 64 * sizes.size + source.size // 512 + 2 * count
    while True:
        numbers, words = _BUFFERS.array("numbers", room, np.uint64), _BUFFERS.array("words", room, np.uint32)
        coded = _BUFFERS.bytes("coded", STATE_BYTES * sizes.size + words.nbytes)
        if not compiled.lib.maskreg_encode_movers(
            compiled.read(source), source.size, own, count, structure, length, compiled.write(numbers),
            compiled.write(words), room, compiled.write(coded), compiled.write(sizes),
        ):  # fmt: skip
            ends = itertools.accumulate(sizes.tolist(), initial=0)
            return [coded[start:end].tobytes() for start, end in itertools.pairwise(ends)]
        room *= 4


def find_movers(source: Codes, target: Codes) -> Movers:
    """Where two sides of a block differ, and the target's codes there; uint16 ``[n]`` each."""
    compiled = library()
    movers, structure = _room(compiled, source.size + _BEYOND)
    return _first(movers, compiled.lib.maskreg_find_movers(
        compiled.read(source), compiled.read(target), source.size, structure
    ))  # fmt: skip


def swapped(values: Codes, movers: Movers) -> Codes:
    """Write the movers' codes into a block; returns what was there, uint16 ``[k]``."""
    compiled = library()
    before, places = movers.codes.copy(), movers.positions
    compiled.lib.maskreg_swap(compiled.write(values), compiled.read(places), compiled.write(before), places.size)
    return before


def changed(values: Codes, movers: Movers) -> Codes:
    """A block with the movers' codes in it."""
    result = values.copy()
    swapped(result, movers)
    return result


def merged(source: Codes, first: Movers, last: Movers) -> Movers:
    """Where a block differs after two changes, one after the other, and its codes there."""
    if not first.positions.size:
        return last
    compiled = library()
    movers, room = _room(compiled, first.positions.size + last.positions.size)
    sides = (part for each in (first, last) for part in (movers_structure(compiled, each), each.positions.size))
    return _first(movers, compiled.lib.maskreg_merge_movers(compiled.read(source), *sides, room))


def decode_movers(
    source: Codes, coded: Bits, starts: Counts, hazards: Hazards, length: int, before: Movers = NONE
) -> Movers:
    """Decode sub-blocks of a block, given a source that other movers have changed before.

    ``starts``: int64 ``[k + 1]``, bytes of ``coded`` where the sub-blocks begin, and where the last one ends; each has
    a state and whole words. ``length``: coordinates of each sub-block but the last, which has the rest.

    Raises:
        CorruptError: one is damaged.
    """
    count = starts.size - 1
    compiled = library()
    structure, _arrays = _structure(compiled, hazards)
    movers, room = _room(compiled, min(count * length, 8 * int(starts[-1] - starts[0])))
    own, befores = movers_structure(compiled, before), before.positions.size
    found: int = compiled.lib.maskreg_decode_movers(
        compiled.read(source), source.size, structure, compiled.read(coded), count, length,
        compiled.read(np.ascontiguousarray(starts)), own, befores, room,
    )  # fmt: skip
    if found < 0:
        raise CorruptError("block", f"its sub-block {-found - 1} does not decode")
    return _first(movers, found)


def _room(compiled: Library, size: int) -> tuple[Movers, Any]:
    """Memory of the thread for so many movers, and ``maskreg_movers`` of kernels.h."""
    movers = Movers(_BUFFERS.array("positions", size, np.uint32), _BUFFERS.array("codes", size, np.uint16))
    return movers, movers_structure(compiled, movers)


def _first(movers: Movers, count: int) -> Movers:
    return Movers(movers.positions[:count].copy(), movers.codes[:count].copy())


@cache
def _tables(compiled: Library) -> tuple[Any, ...]:
    """The fields of ``maskreg_hazards`` that all blocks share."""
    return tuple(compiled.read(table) for table in (POWERS, LOGARITHMS))


def _structure(compiled: Library, hazards: Hazards) -> tuple[Any, Any]:
    """``maskreg_hazards`` of kernels.h, and what has to live as long as it."""
    arrays = [compiled.read(array) for array in (hazards.by_class, hazards.shares, hazards.longer, hazards.tops)]
    return compiled.ffi.new("maskreg_hazards *", (*arrays, *_tables(compiled), hazards.first)), arrays


def movers_structure(compiled: Library, movers: Movers) -> Any:
    """``maskreg_movers`` of kernels.h; the movers have to live as long."""
    return compiled.ffi.new("maskreg_movers *", tuple(compiled.write(side) for side in movers))

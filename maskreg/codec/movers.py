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

A sign takes one bit of the same number: most movers move by one ULP, and so take one number each. Of a wait it says
nothing.

How many ULPs a mover moves, s, is k = floor(log2(s)), as k *longer* bits of 1 and one of 0; then the k bits below the
highest of s, highest first. 15 longer bits of 1 stand for a literal of 16 bits. A literal's bits, and those below the
highest two, take a bit each. The others are adaptive: each has a chance, which counts what came before under the same
number. That number is the binade that a step reaches, exponent + k, as updates are about as long for every weight:

    exponent 112, step 5 = 101b: longer 1 (first, 112), 1 (113), 0 (114); top bit 0 (114); then 1

Movers of the exponents from ``ones`` on move by one ULP: there is no more than their sign.

Hazards: how likely coordinates are to move, so that the way to the next *mover* costs one number.

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
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes, Movers
from maskreg.codec.bits import Bits
from maskreg.codec.ulp_steps import EXPONENTS, LITERAL_BITS, Counts
from maskreg.errors import CorruptError
from maskreg.native import Library, library
from maskreg.parallel import Buffers

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


_FALL = 4  # by how much an index is expected to be less than the index of the class before

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
    """
    last = int(np.flatnonzero(moved)[-1])
    costs = np.stack([moved, total - moved], 1)[: last + 1] @ COSTS
    path: list[int] = []
    for cost in costs:
        path.append(int((cost + USUAL_STEPS[path[-1]] if path else cost).argmin()))
    return np.array(path, np.uint8), int(costs[np.arange(last + 1), path].sum())


def pack_indexes(indexes: Indexes) -> list[tuple[int, int]]:
    """Indexes as numbers of some bits: the first in 6, the Rice parameter in 2, a Rice code for each of the others."""
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


LOWEST_STATE = 1 << 32
"""Below that, a word of 32 bits is appended; the state after the last coordinate."""

STATE_BYTES = 8
"""Of the state before the first coordinate, at the beginning of a sub-block."""

MOST_LONGER = 15
"""Longer bits of a literal."""

CHANCE_BITS = 16
"""A chance of 1 is 1 << CHANCE_BITS."""

_LEAST_CHANCE = 64
_RATES = [(1 << 17) // (2 * seen + 3) for seen in range(62)]
"""65,536 / (n + 3/2) after n bits: chances are means that begin with half a bit of each kind."""

CLASSES = 16
"""Classes of exponents."""

NONE = Movers(np.empty(0, np.uint32), np.empty(0, np.uint16))
"""No movers."""

_BEYOND = 4  # movers more than there are, which finding them may write

_BUFFERS = Buffers()

_BINADES = 288  # binades that a step may reach (an exponent and up to 15 longer bits), and more


class Hazards(NamedTuple):
    """How likely the coordinates of a block are to move.

    Attributes:
        first: the exponent of the first class, which has all lower ones too; the last class has all higher ones.
        by_class: uint16 ``[16]``, at most 32,767; 0 where nothing moves.
        ones: exponent from which on movers move by one ULP.
    """

    first: int
    by_class: npt.NDArray[np.uint16]
    ones: int

    @property
    def by_exponent(self) -> npt.NDArray[np.uint16]:
        """uint16 ``[256]``."""
        hazards = np.empty(EXPONENTS, np.uint16)
        last = self.first + CLASSES - 1
        hazards[: self.first], hazards[last:] = self.by_class[0], self.by_class[-1]
        hazards[self.first : last] = self.by_class[:-1]
        return hazards


@dataclass
class _Chances:
    """Adaptive bits: how likely a 0 is, in 1 / 65,536, and how many came before."""

    chances: list[int] = field(default_factory=lambda: [1 << CHANCE_BITS - 1] * (EXPONENTS + 2 * _BINADES))
    seen: list[int] = field(default_factory=lambda: [0] * (EXPONENTS + 2 * _BINADES))

    def of_zero(self, number: int) -> int:
        """Share of the numbers below 65,536 that mean 0."""
        return min(max(self.chances[number], _LEAST_CHANCE), (1 << CHANCE_BITS) - _LEAST_CHANCE)

    def count(self, number: int, bit: int) -> None:
        """Take note of a bit."""
        goal = 0 if bit else (1 << CHANCE_BITS) - 1
        self.chances[number] += (goal - self.chances[number]) * _RATES[self.seen[number]] >> CHANCE_BITS
        self.seen[number] = min(self.seen[number] + 1, len(_RATES) - 1)


def _longer(exponent: int, k: int) -> int:
    """Number of the chance of the longer bit after k others."""
    return EXPONENTS + exponent + k if k else exponent


def _top(exponent: int, k: int) -> int:
    """Number of the chance of the bit below the highest."""
    return EXPONENTS + _BINADES + exponent + k


class Taken(NamedTuple):
    """Numbers that the coder takes: [start, start + freq) of 2^bits, and a sign below these bits where there is one."""

    start: int
    freq: int
    bits: int
    sign: int = -1


def encode_movers(source: Codes, movers: Movers, hazards: Hazards, length: int) -> list[bytes]:
    """Code a block, whose movers have hazards above 0: of each sub-block, the state and the words.

    ``length``: coordinates of each sub-block but the last, which has the rest.
    """
    if compiled := library():
        return _encode_compiled(compiled, source, movers, hazards, length)
    begins = range(0, source.size, length)
    borders = np.searchsorted(movers.positions, np.array([*begins, source.size], np.uint32)).tolist()
    return [
        _encode(source[at : at + length], Movers(movers.positions[low:high] - at, movers.codes[low:high]), hazards)
        for at, (low, high) in zip(begins, itertools.pairwise(borders), strict=True)
    ]


def _encode(source: Codes, movers: Movers, hazards: Hazards) -> bytes:
    """A sub-block."""
    state, words = LOWEST_STATE, []
    for start, freq, bits, sign in reversed(list(_numbers(source, movers, hazards))):
        if state >= freq << 64 - bits - (sign >= 0):
            words.append(state & 0xFFFFFFFF)
            state >>= 32
        state = (state // freq << bits) + state % freq + start
        if sign >= 0:
            state = 2 * state + sign
    return state.to_bytes(STATE_BYTES, "little") + np.array(words[::-1], "<u4").tobytes()


def _numbers(source: Codes, movers: Movers, hazards: Hazards) -> Iterator[Taken]:
    """All numbers, in the order in which they are decoded."""
    ends = _ends(source, hazards)
    reached, chances = 0, _Chances()
    for k, moved in zip(movers.positions.tolist(), movers.codes.tolist(), strict=True):
        before, after = int(ends[k]), int(ends[k + 1])
        while before - reached >= LIMIT:
            yield Taken(0, survival(LIMIT), SURVIVAL_BITS, 0)
            reached += LIMIT
        start = survival(min(after - reached, LIMIT))
        code = int(source[k])
        sign = int(moved & 0x7FFF < code & 0x7FFF)
        yield Taken(start, survival(max(before - reached, 0)) - start, SURVIVAL_BITS, sign)
        reached = after
        if _exponent(code) < hazards.ones:
            yield from _length_numbers(code, moved, chances)
    left = int(ends[-1]) - reached
    while left >= LIMIT:
        yield Taken(0, survival(LIMIT), SURVIVAL_BITS, 0)
        left -= LIMIT
    yield Taken(0, survival(left), SURVIVAL_BITS, 0)


def _exponent(code: int) -> int:
    return code >> 7 & 0xFF


def _ends(source: Codes, hazards: Hazards) -> Counts:
    """Sums of hazards before each coordinate, and of all: int64 ``[n + 1]``."""
    ends = np.zeros(source.size + 1, np.int64)
    np.cumsum(hazards.by_exponent[source >> 7 & 0xFF], out=ends[1:])
    return ends


def _length_numbers(source: int, target: int, chances: _Chances) -> Iterator[Taken]:
    exponent, literal = _exponent(source), (source ^ target) >> 15
    length = abs((target & 0x7FFF) - (source & 0x7FFF))

    def adaptive(number: int, bit: int) -> Taken:
        share = chances.of_zero(number)
        chances.count(number, bit)
        return Taken(share, (1 << CHANCE_BITS) - share, CHANCE_BITS) if bit else Taken(0, share, CHANCE_BITS)

    k = MOST_LONGER if literal else length.bit_length() - 1
    for j in range(k):
        yield adaptive(_longer(exponent, j), 1)
    if literal:
        yield Taken(target, 1, LITERAL_BITS)
        return
    yield adaptive(_longer(exponent, k), 0)
    if k:
        yield adaptive(_top(exponent, k), length >> k - 1 & 1)
        yield Taken(length & (1 << k - 1) - 1, 1, k - 1)


class _Coder:
    """Takes numbers out of a coded sub-block."""

    def __init__(self, coded: Bits) -> None:
        self.state = int.from_bytes(coded[:STATE_BYTES].tobytes(), "little")
        self._words = iter(coded[STATE_BYTES:].view("<u4").tolist())
        self.complete = True

    def number(self, bits: int) -> int:
        """The next number below 2^bits, to be taken."""
        return self.state & (1 << bits) - 1

    def take_sign(self) -> int:
        """Take a sign; then a number must be taken, because only that fetches words."""
        sign = self.state & 1
        self.state >>= 1
        return sign

    def take(self, start: int, freq: int, bits: int) -> None:
        """Take [start, start + freq) of 2^bits, among which the next number is."""
        self.state = freq * (self.state >> bits) + self.number(bits) - start
        if self.state < LOWEST_STATE:
            word = next(self._words, None)
            self.complete &= word is not None
            self.state = self.state << 32 | (word or 0)

    def plain(self, bits: int) -> int:
        """Take a number of so many bits."""
        number = self.number(bits)
        self.take(number, 1, bits)
        return number

    def adaptive(self, chances: _Chances, number: int) -> int:
        """Take an adaptive bit."""
        share = chances.of_zero(number)
        bit = int(self.number(CHANCE_BITS) >= share)
        self.take(share if bit else 0, (1 << CHANCE_BITS) - share if bit else share, CHANCE_BITS)
        chances.count(number, bit)
        return bit

    @property
    def at_end(self) -> bool:
        """Whether everything was taken, and no more."""
        return self.complete and self.state == LOWEST_STATE and next(self._words, None) is None


def find_movers(source: Codes, target: Codes) -> Movers:
    """Where two sides of a block differ, and the target's codes there; uint16 ``[n]`` each."""
    if compiled := library():
        movers, structure = _room(compiled, source.size + _BEYOND)
        return _first(movers, compiled.lib.maskreg_find_movers(
            compiled.read(source), compiled.read(target), source.size, structure
        ))  # fmt: skip
    positions = np.flatnonzero(source != target)
    return Movers(positions.astype(np.uint32), target[positions])


def swapped(values: Codes, movers: Movers) -> Codes:
    """Write the movers' codes into a block; returns what was there, uint16 ``[k]``."""
    if compiled := library():
        before, places = movers.codes.copy(), movers.positions
        compiled.lib.maskreg_swap(compiled.write(values), compiled.read(places), compiled.write(before), places.size)
    else:
        before = values[movers.positions]
        values[movers.positions] = movers.codes
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
    if compiled := library():
        movers, room = _room(compiled, first.positions.size + last.positions.size)
        sides = (part for each in (first, last) for part in (movers_structure(compiled, each), each.positions.size))
        return _first(movers, compiled.lib.maskreg_merge_movers(compiled.read(source), *sides, room))
    result = changed(source, first)
    swapped(result, last)
    return find_movers(source, result)


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
    if compiled := library():
        structure, _by_class = _structure(compiled, hazards)
        movers, room = _room(compiled, min(count * length, 8 * int(starts[-1] - starts[0])))
        own, befores = movers_structure(compiled, before), before.positions.size
        found: int = compiled.lib.maskreg_decode_movers(
            compiled.read(source), source.size, structure, compiled.read(coded), count, length,
            compiled.read(np.ascontiguousarray(starts)), own, befores, room,
        )  # fmt: skip
        if found < 0:
            raise _damaged(-found - 1)
        return _first(movers, found)
    source, decoded = changed(source, before), list[tuple[int, int]]()
    for number in range(count):
        own, coder = source[number * length : (number + 1) * length], _Coder(coded[starts[number] : starts[number + 1]])
        decoded += ((number * length + k, code) for k, code in _decode(own, coder, hazards))
        if not coder.at_end:
            raise _damaged(number)
    return Movers(np.array([k for k, _ in decoded], np.uint32), np.array([code for _, code in decoded], np.uint16))


def _damaged(number: int) -> CorruptError:
    return CorruptError("block", f"its sub-block {number} does not decode")


def _room(compiled: Library, size: int) -> tuple[Movers, Any]:
    """Memory of the thread for so many movers, and ``maskreg_movers`` of kernels.h."""
    movers = Movers(_BUFFERS.array("positions", size, np.uint32), _BUFFERS.array("codes", size, np.uint16))
    return movers, movers_structure(compiled, movers)


def _first(movers: Movers, count: int) -> Movers:
    return Movers(movers.positions[:count].copy(), movers.codes[:count].copy())


def _decode(source: Codes, coder: _Coder, hazards: Hazards) -> Iterator[tuple[int, int]]:
    """The movers of a sub-block."""
    ends = _ends(source, hazards)
    reached, total, chances = 0, int(ends[-1]), _Chances()
    while True:
        sign, number = coder.take_sign(), coder.number(SURVIVAL_BITS)
        waits = number < survival(LIMIT)
        goal = reached + (LIMIT if waits else hazard_of(number))
        if goal > total:
            coder.take(0, survival(total - reached), SURVIVAL_BITS)
            return
        if waits:
            coder.take(0, survival(LIMIT), SURVIVAL_BITS)
            reached = goal
            continue
        k = int(np.searchsorted(ends, goal)) - 1
        start = survival(min(int(ends[k + 1]) - reached, LIMIT))
        coder.take(start, survival(max(int(ends[k]) - reached, 0)) - start, SURVIVAL_BITS)
        reached = int(ends[k + 1])
        code = int(source[k])
        length = _length(code, coder, chances) if _exponent(code) < hazards.ones else 1
        moved = code & 0x8000 | code + (-length if sign else length) & 0x7FFF
        if length < 0:
            moved = coder.plain(LITERAL_BITS)
        if moved != code:
            yield k, moved


def _length(source: int, coder: _Coder, chances: _Chances) -> int:
    """How many ULPs a mover moves; -1 where a literal follows."""
    exponent, k = _exponent(source), 0
    while k < MOST_LONGER and coder.adaptive(chances, _longer(exponent, k)):
        k += 1
    if k == MOST_LONGER:
        return -1
    if not k:
        return 1
    top = coder.adaptive(chances, _top(exponent, k))
    return 2 + top << k - 1 | coder.plain(k - 1)


_RATE_TABLE = np.array(_RATES, np.uint32)


@cache
def _tables(compiled: Library) -> tuple[Any, ...]:
    """The fields of ``maskreg_hazards`` that all blocks share."""
    return tuple(compiled.read(table) for table in (POWERS, LOGARITHMS, _RATE_TABLE))


def _structure(compiled: Library, hazards: Hazards) -> tuple[Any, Any]:
    """``maskreg_hazards`` of kernels.h, and what has to live as long as it."""
    by_class = compiled.read(hazards.by_class)
    return compiled.ffi.new("maskreg_hazards *", (by_class, *_tables(compiled), hazards.first, hazards.ones)), by_class


def movers_structure(compiled: Library, movers: Movers) -> Any:
    """``maskreg_movers`` of kernels.h; the movers have to live as long."""
    return compiled.ffi.new("maskreg_movers *", tuple(compiled.write(side) for side in movers))


def _encode_compiled(compiled: Library, source: Codes, movers: Movers, hazards: Hazards, length: int) -> list[bytes]:
    structure, _by_class = _structure(compiled, hazards)
    own, count = movers_structure(compiled, movers), movers.positions.size
    sizes = np.empty(-(-source.size // length), np.int64)
    room = 64 * sizes.size + source.size // 512 + 2 * count
    while True:
        numbers, words = _BUFFERS.array("numbers", 3 * room, np.uint32), _BUFFERS.array("words", room, np.uint32)
        coded = _BUFFERS.bytes("coded", STATE_BYTES * sizes.size + words.nbytes)
        if not compiled.lib.maskreg_encode_movers(
            compiled.read(source), source.size, own, count, structure, length, compiled.write(numbers),
            compiled.write(words), room, compiled.write(coded), compiled.write(sizes),
        ):  # fmt: skip
            ends = itertools.accumulate(sizes.tolist(), initial=0)
            return [coded[start:end].tobytes() for start, end in itertools.pairwise(ends)]
        room *= 4

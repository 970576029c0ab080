"""Coding the movers of a sub-block in which few coordinates move: where they are, and how far each one moves.

One coder, an rANS state of 64 bits (J. Duda, arXiv:1311.2540), takes everything in turn. Decoding::

    reached = 0                                                   hazard of all that is decoded
    loop:
        u = floor(state / 2) % 2^28, and the sign is state % 2
        if u < survival(LIMIT): take [0, survival(LIMIT)); reached += LIMIT                      a long wait goes on
        else: k = the first coordinate with after(k) - reached >= hazard_of(u)                   hazards.py
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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Codes
from maskreg.codec.bits import Bits
from maskreg.codec.hazards import LIMIT, LOGARITHMS, POWERS, SURVIVAL_BITS, hazard_of, survival
from maskreg.codec.ulp_steps import EXPONENTS, LITERAL_BITS, Counts
from maskreg.native import Library, library

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

_BINADES = 288
"""Binades that a step may reach (an exponent and up to 15 longer bits), and more."""


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


def encode_movers(source: Codes, target: Codes, hazards: Hazards) -> bytes:
    """Code a sub-block: the state, and the words.

    ``source``, ``target``: uint16 ``[n]``. ``hazards``: above 0 for every mover.
    """
    if compiled := library():
        return _encode_compiled(compiled, source, target, hazards)
    state, words = LOWEST_STATE, []
    for start, freq, bits, sign in reversed(list(_numbers(source, target, hazards))):
        if state >= freq << 64 - bits - (sign >= 0):
            words.append(state & 0xFFFFFFFF)
            state >>= 32
        state = (state // freq << bits) + state % freq + start
        if sign >= 0:
            state = 2 * state + sign
    return state.to_bytes(STATE_BYTES, "little") + np.array(words[::-1], "<u4").tobytes()


def _numbers(source: Codes, target: Codes, hazards: Hazards) -> Iterator[Taken]:
    """All numbers, in the order in which they are decoded."""
    ends = _ends(source, hazards)
    reached, chances = 0, _Chances()
    for k in np.flatnonzero(source != target).tolist():
        before, after = int(ends[k]), int(ends[k + 1])
        while before - reached >= LIMIT:
            yield Taken(0, survival(LIMIT), SURVIVAL_BITS, 0)
            reached += LIMIT
        start = survival(min(after - reached, LIMIT))
        code, moved = int(source[k]), int(target[k])
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


def decode_movers(source: Codes, coded: Bits, starts: Counts, hazards: Hazards, length: int, values: Codes) -> int:
    """Decode sub-blocks; returns 0, or the number, from 1, of one that is damaged.

    ``source``: uint16 ``[n]``, of all sub-blocks. ``coded``: uint8, the whole block. ``starts``: int64 ``[k + 1]``,
    bytes where the sub-blocks begin, and where the last one ends. Each has the bytes of a state and of whole words.
    ``length``: coordinates of each sub-block but the last, which has the rest. ``values``: uint16 ``[n]``, filled.
    """
    if compiled := library():
        structure, _by_class = _structure(compiled, hazards)
        damaged: int = compiled.lib.maskreg_decode_movers(
            compiled.read(source), source.size, structure, compiled.read(coded), starts.size - 1, length,
            compiled.read(np.ascontiguousarray(starts)), compiled.write(values),
        )  # fmt: skip
        return damaged
    values[:] = source
    for number in range(starts.size - 1):
        own = slice(number * length, (number + 1) * length)
        if not _decode(source[own], _Coder(coded[starts[number] : starts[number + 1]]), hazards, values[own]):
            return number + 1
    return 0


def _decode(source: Codes, coder: _Coder, hazards: Hazards, values: Codes) -> bool:
    """Decode a sub-block into values that are the source's; returns whether it is whole."""
    ends = _ends(source, hazards)
    reached, total, chances = 0, int(ends[-1]), _Chances()
    while True:
        sign, number = coder.take_sign(), coder.number(SURVIVAL_BITS)
        waits = number < survival(LIMIT)
        goal = reached + (LIMIT if waits else hazard_of(number))
        if goal > total:
            coder.take(0, survival(total - reached), SURVIVAL_BITS)
            return coder.at_end
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
        if length < 0:
            values[k] = coder.plain(LITERAL_BITS)
        else:
            values[k] = code & 0x8000 | code + (-length if sign else length) & 0x7FFF


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


def _encode_compiled(compiled: Library, source: Codes, target: Codes, hazards: Hazards) -> bytes:
    structure, _by_class = _structure(compiled, hazards)
    room = 64 + source.size // 32
    while True:
        numbers, words = np.empty((room, 3), np.uint32), np.empty(room, np.uint32)
        state = compiled.ffi.new("uint64_t *")
        used: int = compiled.lib.maskreg_encode_movers(
            compiled.read(source), compiled.read(target), source.size, structure, compiled.write(numbers), room, state,
            compiled.write(words),
        )  # fmt: skip
        if used >= 0:
            coded: bytes = words[room - used :].astype("<u4").tobytes()
            return int(state[0]).to_bytes(STATE_BYTES, "little") + coded
        room *= 4

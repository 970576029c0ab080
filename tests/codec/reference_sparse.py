"""A slow decoder of sparse blocks, written from FORMAT.md section 5.6 alone: coordinate by coordinate, in integers."""

from __future__ import annotations

import struct
from decimal import Decimal, getcontext

from tests.codec.reading import Bits, must

L = 65_536

getcontext().prec = 40


def _power(numerator: int, denominator: int) -> int:
    """2^31 * 2^(-numerator/denominator), rounded to the nearest."""
    return int((Decimal(2) ** (31 - Decimal(numerator) / denominator)).to_integral_value())


A = [_power(b, 128) for b in range(128)]
C = [_power(c, 8192) for c in range(64)]
HAZARDS = [*(int(Decimal(2) ** (Decimal(i) / 4)) for i in range(60)), 32_767]


def survival(h: int) -> int:
    return A[h % 8192 // 64] * C[h % 64] >> 34 + h // 8192


class _State:
    """The state x of a sub-block, and its words."""

    def __init__(self, part: bytes) -> None:
        self.x = int.from_bytes(part[:8], "little")
        self.words = list(struct.unpack(f"<{len(part) // 4 - 2}I", part[8:]))
        self.chances: dict[tuple[str, int], tuple[int, int]] = {}

    def take(self, first: int, count: int, d: int) -> None:
        q = self.x & (1 << d) - 1
        self.x = count * (self.x >> d) + q - first
        if self.x < 2**32:
            must(bool(self.words))
            self.x = self.x * 2**32 + self.words.pop(0)

    def plain(self, d: int) -> int:
        q = self.x & (1 << d) - 1
        self.take(q, 1, d)
        return q

    def adaptive(self, name: tuple[str, int]) -> int:
        c, n = self.chances.get(name, (32_768, 0))
        border = min(max(c, 64), 65_472)
        bit = int(self.x % 2**16 >= border)
        if bit:
            self.take(border, 2**16 - border, 16)
        else:
            self.take(0, border, 16)
        c += (((0 if bit else 65_535) - c) * (2**17 // (2 * n + 3))) // 2**16
        self.chances[name] = c, min(n + 1, 61)
        return bit


def decode_sparse(source: list[int], block: bytes) -> list[int]:
    """The target's codes.

    Raises:
        RefusedError: the block is none of ``len(source)`` codes.
    """
    n, _, count, first, classes = struct.unpack_from("<IBBBB", block)
    must(len(block) <= 8 + 2 * n and count >= 1 and first <= 240 and 1 <= classes <= 16)
    size = -(-n // (4096 * count)) * 4096
    must((count - 1) * size < n)
    bits = Bits(block, 64, 8 * len(block))
    ones, index, parameter = bits.take(5), bits.take(6), bits.take(2)
    indexes = [index]
    for residual in bits.rice(classes - 1, parameter, 60):
        indexes.append(max(indexes[-1] - 4, 0) + residual)
    must(all(0 <= index <= 60 for index in indexes))
    hazards = [*(HAZARDS[index] for index in indexes), *[0] * (16 - classes)]
    by_exponent = [hazards[min(max(e - first, 0), 15)] for e in range(256)]
    longest = 256 if ones == 31 else first + ones
    at, lengths = -(-bits.at // 8), [len(block) - -(-bits.at // 8)]
    if count > 1:
        must(at + 4 * count <= len(block))
        lengths = [8 + 4 * words for words in struct.unpack_from(f"<{count}I", block, at)]
        at += 4 * count
    must(at + sum(lengths) == len(block) and min(lengths) >= 8 and lengths[-1] % 4 == 0)
    target = list(source)
    for j, length in enumerate(lengths):
        run = range(j * size, min((j + 1) * size, n))
        _decode_run(source, target, run, _State(block[at : at + length]), by_exponent, longest)
        at += length
    return target


def _decode_run(
    source: list[int], target: list[int], run: range, state: _State, by_exponent: list[int], longest: int
) -> None:
    h = own = 0
    coordinates = iter(run)
    i = -1
    while True:
        sign = state.x % 2
        state.x //= 2
        u = state.x % 2**28
        while not (h >= L if u < survival(L) else u >= survival(min(h, L))):
            i = next(coordinates, -1)
            if i < 0:
                state.take(0, survival(h), 28)
                must(state.x == 2**32 and not state.words)
                return
            own = by_exponent[source[i] >> 7 & 0xFF]
            h += own
        if u < survival(L):
            state.take(0, survival(L), 28)
            h -= L
            continue
        low = survival(min(h, L))
        state.take(low, survival(max(h - own, 0)) - low, 28)
        target[i] = _moved(source[i], sign, state, longest)
        h = 0


def _moved(code: int, sign: int, state: _State, longest: int) -> int:
    e, length = code >> 7 & 0xFF, 1
    if e < longest:
        m = 0
        while m < 15 and state.adaptive(("longer", e + m + 1000) if m else ("first", e)):
            m += 1
        if m == 15:
            return state.plain(16)
        if m:
            top = state.adaptive(("top", e + m))
            length = (2 + top) * 2 ** (m - 1) + state.plain(m - 1)
    return code & 0x8000 | (code + (-length if sign else length)) % 2**15

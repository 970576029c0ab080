"""A slow decoder of ``step2``, written from FORMAT.md section 5 alone, in integers and lists.

It knows nothing of the product's decoder; the two must agree on every block, also on which to refuse.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tests.codec.reading import Bits, must
from tests.codec.reference_sparse import decode_sparse

LITERAL = 63
LANES = 16


@dataclass
class Model:
    """What a coded block says before its tokens; FORMAT.md has the names."""

    width: int
    column: int
    base: int
    row_scales: list[int] = field(default_factory=list)
    column_scales: list[int] = field(default_factory=list)
    row_factors: list[list[int]] = field(default_factory=list)
    column_factors: list[list[int]] = field(default_factory=list)
    bounds: list[int] = field(default_factory=lambda: [0] * 7)
    table_of_cell: list[int] = field(default_factory=list)
    tables: list[list[int]] = field(default_factory=list)

    @property
    def cells(self) -> int:
        return (32 if self.row_scales else 16) * (8 if self.row_factors else 1)

    def place(self, i: int, code: int) -> tuple[int, bool]:
        """Cell of a coordinate, and whether it is flipped."""
        row, column = divmod(self.column + i, self.width)
        exponent = code >> 7 & 0xFF
        if self.row_scales:
            level = 2 * exponent - self.base - self.row_scales[row] - self.column_scales[column]
            cell = max(0, min(31, level))
        else:
            cell = max(0, min(15, exponent - self.base // 2))
        if not self.row_factors:
            return cell, False
        prediction = sum(
            one[row] * other[column] for one, other in zip(self.row_factors, self.column_factors, strict=True)
        )
        size = sum(bound <= abs(prediction) for bound in self.bounds)
        return 8 * cell + size, (prediction < 0) != bool(code & 0x8000)


def decode(source: list[int], block: bytes) -> list[int]:
    """The target's codes.

    Raises:
        RefusedError: the block is none of ``len(source)`` codes.
    """
    must(len(block) >= 8)
    n, kind, count, rank, flags = struct.unpack_from("<IBBBB", block)
    must(1 <= n <= 1 << 22 and n == len(source) and kind <= 7 and len(block) <= 8 + 2 * n)
    if kind > 3:
        must((count, flags) == (0, 0) and rank <= {5: 255, 6: 1}.get(kind, 0))
        return decode_derived(source, block, kind, rank)
    if kind < 2:
        must((count, rank, flags) == (0, 0, 0))
        must(len(block) == 8 + (2 * n if kind else 0))
        return list(struct.unpack_from(f"<{n}H", block, 8)) if kind else list(source)
    if kind == 3:
        return decode_sparse(source, block)
    must(24 <= len(block) <= 8 + 2 * n)
    must(count >= 1 and rank <= 32 and flags <= 1)
    size = -(-n // (4096 * count)) * 4096
    must((count - 1) * size < n)
    model, at = _read_model(block, n, rank, flags)
    starts = range(0, n, size)
    must(at + 8 * len(starts) <= len(block))
    sizes = [struct.unpack_from("<II", block, at + 8 * k) for k in range(len(starts))]
    at += 8 * len(starts)
    must(at + sum(4 * LANES + 2 * words + -(-extras // 8) for words, extras in sizes) == len(block))
    target: list[int] = []
    for start, (words, extras) in zip(starts, sizes, strict=True):
        run = range(start, min(start + size, n))
        target += _decode_run(source, run, model, block, at, words, extras)
        at += 4 * LANES + 2 * words + -(-extras // 8)
    return target


def decode_derived(source: list[int], block: bytes, kind: int, byte: int) -> list[int]:
    """The target's codes, of a block that is made of others."""

    def inner(context: list[int], start: int, end: int | None = None) -> list[int]:
        own = block[start:end]
        must(len(own) >= 8 and own[4] < kind)
        return decode(context, own)

    n = len(source)
    if kind == 4:
        must(len(block) >= 12)
        (factor,) = struct.unpack_from("<I", block, 8)
        must(0 < factor >> 23 & 0xFF < 0xFF)
        return inner([_scaled(code, factor) for code in source], 12)
    if kind == 5:
        must(len(block) >= 8 + n)
        context = [code & 0x7F80 | 64 for code in source]
        exponents = [
            (after - before + byte) % 256 for before, after in zip(context, inner(context, 8 + n), strict=True)
        ]
        return [(low & 0x80) << 8 | e << 7 | low & 0x7F for low, e in zip(block[8:], exponents, strict=False)]
    if kind == 6:
        must(len(block) >= 14)
        size, least = struct.unpack_from("<IH", block, 8)
        which = inner(source, 14, 14 + size)
        zeroed = [(a != b) != (a & 0x7FFF < least) for a, b in zip(source, which, strict=True)]
        zeros = [0 if byte else code & 0x8000 for code in source]
        return inner([zero if z else code for zero, z, code in zip(zeros, zeroed, source, strict=True)], 14 + size)
    must(len(block) >= 20)
    width, column, size = struct.unpack_from("<III", block, 8)
    must(column < width <= n and size >= 1 and len(block) >= 20 + size)
    listed, row = set(), 0
    for gap in block[20 : 20 + size]:
        row += gap
        if gap < 255:
            listed.add(row)
            row += 1
    must(block[19 + size] < 255 and max(listed) < -(-(column + n) // width))
    own = [i for i in range(n) if (column + i) // width in listed]
    target = list(source)
    for i, code in zip(own, inner([source[i] for i in own], 20 + size), strict=True):
        target[i] = code
    return target


def _scaled(code: int, factor: int) -> int:
    sign, magnitude = (code ^ factor >> 16) & 0x8000, code & 0x7FFF
    if not 0x80 <= magnitude < 0x7F80:
        return sign | magnitude
    # The product is digits * 2^power, first with 31 or 32 digits, then with 24, then with 8.
    digits = (magnitude & 0x7F | 0x80) * (factor & 0x7FFFFF | 0x800000)
    power = (magnitude >> 7) - 127 - 7 + (factor >> 23 & 0xFF) - 127 - 23
    for kept in (24, 8):
        dropped = digits.bit_length() - kept
        if dropped > 0:
            rest, half = digits % (1 << dropped), 1 << dropped - 1
            digits >>= dropped
            digits += rest > half or (rest == half and digits % 2 == 1)
            power += dropped
    # After both roundings there are 8 digits, or 2^8.
    digits, power = (128, power + 1) if digits == 256 else (digits, power)
    exponent = power + 7 + 127
    return sign | (exponent << 7 | digits & 0x7F if 1 <= exponent <= 254 else magnitude)


def _read_model(block: bytes, n: int, rank: int, scaled: int) -> tuple[Model, int]:
    """The model and the byte after it."""
    width, column, base, tables, size = struct.unpack_from("<IIhHI", block, 8)
    must(width >= 1 and column < width and 0 <= base <= 511 and 1 <= tables <= 32)
    must(width <= n or not (rank or scaled))
    must(24 + size <= len(block))
    rows = -(-(column + n) // width)
    must((rank + scaled) * (rows + width) <= 8 * size)
    bits = Bits(block, 8 * 24, 8 * (24 + size))
    model = Model(width, column, base)
    if scaled:
        model.row_scales, model.column_scales = bits.line(rows, 15), bits.line(width, 15)
    for _ in range(rank):
        model.row_factors.append(bits.line(rows, 31))
        model.column_factors.append(bits.line(width, 31))
    if rank:
        model.bounds = [bits.take(15) for _ in range(7)]
    table = 0
    for _ in range(model.cells):
        if not bits.take(1):
            table = bits.take(5)
        must(table < tables)
        model.table_of_cell.append(table)
    for _ in range(tables):
        first, last = bits.take(6), bits.take(6)
        table_of_tokens = [0] * 64
        for token in range(first, last + 1):
            table_of_tokens[token] = bits.gamma()
        must(sum(table_of_tokens) == 4096)
        must(not any(f for t, f in enumerate(table_of_tokens) if not 5 <= t <= 59 and t != LITERAL))
        model.tables.append(table_of_tokens)
    must(-(-(bits.at - 8 * 24) // 8) == size)
    return model, 24 + size


def _decode_run(
    source: list[int], run: range, model: Model, block: bytes, at: int, words: int, extras: int
) -> list[int]:
    states = list(struct.unpack_from(f"<{LANES}I", block, at))
    word = at + 4 * LANES
    last = word + 2 * words
    bits = Bits(block, 8 * last, 8 * last + extras)
    slots = [[token for token, f in enumerate(table) for _ in range(f)] for table in model.tables]
    firsts = [[sum(table[:token]) for token in range(64)] for table in model.tables]
    codes = []
    for number, i in enumerate(run):
        cell, flipped = model.place(i, source[i])
        table = model.table_of_cell[cell]
        x = states[number % LANES]
        q = x % 4096
        token = slots[table][q]
        x = model.tables[table][token] * (x // 4096) + q - firsts[table][token]
        if x < 1 << 16:
            must(word < last)
            x = x << 16 | int.from_bytes(block[word : word + 2], "little")
            word += 2
        states[number % LANES] = x
        codes.append(_code(source[i], token, flipped, bits))
    must(states == [1 << 16] * LANES and word == last and bits.at == 8 * last + extras)
    return codes


def _code(code: int, token: int, flipped: bool, bits: Bits) -> int:
    if token == LITERAL:
        return bits.take(16)
    step = token - 32
    if abs(step) > 16:
        b = abs(step) - 13
        size = (1 << b) + bits.take(b) + 1
        step = size if step > 0 else -size
    magnitude = (code & 0x7FFF) + (-step if flipped else step)
    return code & 0x8000 | magnitude % (1 << 15)

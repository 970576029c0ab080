"""A slow decoder of ``step1``, written from FORMAT.md section 5 alone, in integers and lists.

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
    must(1 <= n <= 1 << 22 and n == len(source) and kind <= 3)
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

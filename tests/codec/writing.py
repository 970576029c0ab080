"""A slow writer of ``step2`` blocks, for choices that the product's encoder never makes."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import numpy as np

from maskreg.codec.base import Codes, Grid
from maskreg.codec.contexts import Contexts
from maskreg.codec.layout import Model as ProductModel
from maskreg.codec.layout import pack_coded, sub_block_numel
from maskreg.codec.rans import TOKENS, slots_of
from maskreg.codec.subblocks import Pair, classify_all, encode_sub_blocks, most_bytes
from maskreg.codec.tables import Tables
from maskreg.codec.ulp_steps import EXPONENTS, tokens_of
from tests.codec.reference import LANES, LITERAL, Model


class _Writer:
    def __init__(self) -> None:
        self.bits: list[int] = []

    def put(self, value: int, count: int) -> None:
        self.bits += [value >> i & 1 for i in range(count)]

    def line(self, values: Sequence[int]) -> None:
        all_folded = [2 * value if value >= 0 else -2 * value - 1 for value in values]
        k = min(range(8), key=lambda k: sum((folded >> k) + k for folded in all_folded))
        self.put(k, 3)
        for folded in all_folded:
            self.bits += [1] * (folded >> k) + [0]
            self.put(folded, k)

    def gamma(self, value: int) -> None:
        digits = [int(digit) for digit in f"{value + 1:b}"]
        self.bits += [0] * (len(digits) - 1) + digits

    def bytes(self) -> bytes:
        packed = bytearray(-(-len(self.bits) // 8))
        for i, bit in enumerate(self.bits):
            packed[i // 8] |= bit << i % 8
        return bytes(packed)


def write_model(model: Model) -> bytes:
    """The model's bits."""
    writer = _Writer()
    if model.row_scales:
        writer.line(model.row_scales)
        writer.line(model.column_scales)
    for one, other in zip(model.row_factors, model.column_factors, strict=True):
        writer.line(one)
        writer.line(other)
    if model.row_factors:
        for bound in model.bounds:
            writer.put(bound, 15)
    before = 0
    for table in model.table_of_cell:
        writer.put(int(table == before), 1)
        if table != before:
            writer.put(table, 5)
        before = table
    for frequencies in model.tables:
        used = [token for token, frequency in enumerate(frequencies) if frequency]
        writer.put(used[0], 6)
        writer.put(used[-1], 6)
        for token in range(used[0], used[-1] + 1):
            writer.gamma(frequencies[token])
    return writer.bytes()


def write(source: Sequence[int], target: Sequence[int], model: Model, *, count: int = 1) -> bytes:
    """A coded block. Every table must have a frequency for literals, or for whatever tokens there are."""
    directory, parts = b"", b""
    size = -(-len(source) // (4096 * count)) * 4096
    for start in range(0, len(source), size):
        run = range(start, min(start + size, len(source)))
        states, words, extras = _write_run(source, target, run, model)
        directory += struct.pack("<II", len(words), len(extras.bits))
        parts += struct.pack(f"<{LANES}I{len(words)}H", *states, *words) + extras.bytes()
    packed = write_model(model)
    head = struct.pack("<IBBBB", len(source), 2, count, len(model.row_factors), int(bool(model.row_scales)))
    more = struct.pack("<IIhHI", model.width, model.column, model.base, len(model.tables), len(packed))
    return head + more + packed + directory + parts


def _write_run(
    source: Sequence[int], target: Sequence[int], run: range, model: Model
) -> tuple[list[int], list[int], _Writer]:
    extras = _Writer()
    coded = []
    for i in run:
        cell, flipped = model.place(i, source[i])
        table = model.tables[model.table_of_cell[cell]]
        token, extra, count = _token(source[i], target[i], flipped)
        if not table[token]:
            token, extra, count = LITERAL, target[i], 16
        extras.put(extra, count)
        coded.append((table[token], sum(table[:token])))
    states, words = [1 << 16] * LANES, list[int]()
    for number in reversed(range(len(coded))):
        frequency, first = coded[number]
        x = states[number % LANES]
        if x >= frequency << 20:
            words.insert(0, x % (1 << 16))
            x >>= 16
        states[number % LANES] = (x // frequency << 12) + first + x % frequency
    return states, words, extras


def _token(before: int, after: int, flipped: bool) -> tuple[int, int, int]:
    if (before ^ after) & 0x8000:
        return LITERAL, after, 16
    step = (after & 0x7FFF) - (before & 0x7FFF)
    step = -step if flipped else step
    if abs(step) <= 16:
        return 32 + step, 0, 0
    b = (abs(step) - 1).bit_length() - 1
    return 32 + (b + 13 if step > 0 else -b - 13), abs(step) - 1 - (1 << b), b


def random_model(
    n: int, *, width: int, column: int = 0, rank: int = 0, scaled: bool = False, tables: int = 3, seed: int = 0,
    factors: Sequence[int] = range(-31, 32), scales: Sequence[int] = range(-15, 16), base: int = 230,
) -> Model:  # fmt: skip
    """A model that says anything: lines, bounds, tables and who uses them are drawn at random."""
    draw = random.Random(seed)
    rows = -(-(column + n) // width)
    model = Model(width, column, base)
    if scaled:
        model.row_scales, model.column_scales = draw.choices(scales, k=rows), draw.choices(scales, k=width)
    model.row_factors = [draw.choices(factors, k=rows) for _ in range(rank)]
    model.column_factors = [draw.choices(factors, k=width) for _ in range(rank)]
    model.bounds = [draw.choice([0, 1, 50, 900, 5_000, 30_752, 32_767]) for _ in range(7)]
    model.tables = [_random_table(draw) for _ in range(tables)]
    model.table_of_cell = [draw.randrange(tables) for _ in range(model.cells)]
    return model


def _random_table(draw: random.Random) -> list[int]:
    """A few tokens near 0, and literals for all others."""
    tokens = [32, LITERAL, *draw.sample(range(5, 60), draw.randrange(12))]
    weights = [draw.random() ** 4 for _ in tokens]
    table = [0] * 64
    for token, weight in zip(tokens, weights, strict=True):
        table[token] = max(1, table[token], int(3_000 * weight / sum(weights)))
    table[32] += 4_096 - sum(table)
    return table


def write_quickly(source: Codes, target: Codes, model: Model, *, count: int) -> bytes:
    """The same by the product's steps, for blocks of many sub-blocks."""
    contexts, tables = contexts_of(model), _tables_of(model)
    tokens, keys = np.empty(source.size, np.uint8), np.empty(source.size, np.uint16)
    tokens_of(source, target, tokens, np.zeros((EXPONENTS, TOKENS), np.int64))
    classify_all(source, model.column, contexts, tokens, keys)
    length = sub_block_numel(source.size, count)
    out = np.empty(most_bytes(source.size, length), np.uint8)
    size = encode_sub_blocks(Pair(source, target, keys, length), slots_of(tables.freqs, tables.of_cell), out)
    return pack_coded(source.size, count, ProductModel(contexts, tables)) + out[:size].tobytes()


def _tables_of(model: Model) -> Tables:
    return Tables(np.array(model.table_of_cell, np.uint8), np.array(model.tables, np.uint16))


def contexts_of(model: Model) -> Contexts:
    """A model's contexts, as the product has them."""
    none = np.empty((0, 0), np.int8)
    return Contexts(
        grid=Grid(model.width, model.column),
        base=model.base,
        row_scales=np.array(model.row_scales, np.int8),
        column_scales=np.array(model.column_scales, np.int8),
        row_factors=np.array(model.row_factors, np.int8) if model.row_factors else none,
        column_factors=np.array(model.column_factors, np.int8) if model.row_factors else none,
        bounds=np.array(model.bounds, np.int16),
    )

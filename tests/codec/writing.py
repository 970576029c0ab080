"""Writes ``step2`` blocks of models that say anything, which the product's encoder never chooses."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from maskreg.codec.base import Codes, Grid
from maskreg.codec.contexts import Contexts
from maskreg.codec.layout import Model, pack_coded, sub_block_numel
from maskreg.codec.subblocks import Pair, classify_all, encode_sub_blocks, most_bytes
from maskreg.codec.tables import Tables, slots_of
from maskreg.codec.ulp_steps import EXPONENTS, LITERAL, TOKENS, tokens_of


def write(source: Codes, target: Codes, model: Model, *, count: int = 1) -> bytes:
    """A coded block. Every table must have a frequency for literals, or for the tokens there are."""
    tokens, keys = np.empty(source.size, np.uint8), np.empty(source.size, np.uint16)
    tokens_of(source, target, tokens, np.zeros((EXPONENTS, TOKENS), np.int64))
    classify_all(source, model.contexts.grid.column, model.contexts, tokens, keys)
    length = sub_block_numel(source.size, count)
    out = np.empty(most_bytes(source.size, length), np.uint8)
    size = encode_sub_blocks(Pair(source, target, keys, length), slots_of(model.tables), out)
    return pack_coded(source.size, count, model) + out[:size].tobytes()


def random_model(
    n: int, *, width: int, column: int = 0, rank: int = 0, scaled: bool = False, tables: int = 3, seed: int = 0,
    factors: Sequence[int] = range(-31, 32), scales: Sequence[int] = range(-15, 16), base: int = 230,
) -> Model:  # fmt: skip
    """A model that says anything: lines, bounds, tables and who uses them are drawn at random."""
    draw = random.Random(seed)
    rows = -(-(column + n) // width)

    def lines(values: Sequence[int], count: int, length: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
        drawn = [draw.choices(values, k=length) for _ in range(count)]
        return np.array(drawn, np.int8) if drawn else np.empty((0, 0), np.int8)

    of_rows, of_columns = (lines(scales, int(scaled), length).reshape(-1) for length in (rows, width))
    row_factors, column_factors = (lines(factors, rank, length) for length in (rows, width))
    bounds = np.array([draw.choice([0, 1, 50, 900, 5_000, 30_752, 32_767]) for _ in range(7)], np.int16)
    contexts = Contexts(Grid(width, column), base, of_rows, of_columns, row_factors, column_factors, bounds)
    freqs = np.array([_random_table(draw) for _ in range(tables)], np.uint16)
    of_cell = np.array([draw.randrange(tables) for _ in range(contexts.cells)], np.uint8)
    return Model(contexts, Tables(of_cell, freqs))


def _random_table(draw: random.Random) -> list[int]:
    """A few tokens near 0, and literals for all others."""
    tokens = [32, LITERAL, *draw.sample(range(5, 60), draw.randrange(12))]
    weights = [draw.random() ** 4 for _ in tokens]
    table = [0] * 64
    for token, weight in zip(tokens, weights, strict=True):
        table[token] = max(1, table[token], int(3_000 * weight / sum(weights)))
    table[32] += 4_096 - sum(table)
    return table

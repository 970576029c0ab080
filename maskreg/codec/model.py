"""What a coded block says before its tokens: contexts and tables, as bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import PLAIN_BITS, get_bits, get_rice, put_bits, put_rice, rice_bits
from maskreg.codec.contexts import MAX_FACTOR, MAX_SCALE, SIZES, Contexts, rows_of
from maskreg.codec.grid import Grid
from maskreg.codec.tables import Tables, pack_tables, unpack_tables

_BOUND_BITS = 15

_TABLE_BYTES = 64 * 4 + 8
"""Of a packed table, more than it ever takes."""


@dataclass(frozen=True)
class Model:
    """Contexts and tables of a block."""

    contexts: Contexts
    tables: Tables


def side_bits(contexts: Contexts) -> int:
    """Bits that scales and factors take."""
    return sum(rice_bits(line, _best(line)) + PLAIN_BITS for line in _lines(contexts))


def pack_model(model: Model) -> bytes:
    """The model as bits, filled up to a byte."""
    contexts = model.contexts
    room = side_bits(contexts) // 8 + 64 + len(model.tables.of_cell) + len(model.tables.freqs) * _TABLE_BYTES
    bits = np.zeros(room, np.uint8)
    at = 0
    for line in _lines(contexts):
        plain = _best(line)
        at = put_rice(bits, put_bits(bits, at, plain, PLAIN_BITS), line, plain)
    if contexts.rank:
        for bound in contexts.bounds.tolist():
            at = put_bits(bits, at, bound, _BOUND_BITS)
    at = pack_tables(bits, at, model.tables)
    return bits[: -(-at // 8)].tobytes()


def unpack_model(
    packed: npt.NDArray[np.uint8], n: int, grid: Grid, base: int, *, scaled: bool, rank: int, tables: int
) -> Model | None:
    """The model in ``packed``; None when there is none, or anything is left over.

    Args:
        packed: uint8.
        n: coordinates of the block.
        grid: where they lie; no wider than ``n`` when the model is scaled or has a rank.
        base: of the contexts.
        scaled: whether it has scales.
        rank: of its factors.
        tables: how many.
    """
    rows = rows_of(grid, n)
    at = 0
    rows_scaled, columns_scaled = (rows, grid.width) if scaled else (0, 0)
    at, row_scales = _line(packed, at, rows_scaled, MAX_SCALE)
    at, column_scales = _line(packed, at, columns_scaled, MAX_SCALE)
    sides = [np.zeros((rank, length), np.int8) for length in ((rows, grid.width) if rank else (0, 0))]
    for component in range(rank):
        for side in sides:
            at, side[component] = _line(packed, at, side.shape[1], MAX_FACTOR)
    bounds = np.zeros(SIZES - 1, np.int16)
    if at >= 0 and rank:
        for i in range(SIZES - 1):
            bounds[i] = get_bits(packed, at, _BOUND_BITS)
            at += _BOUND_BITS
    if at < 0:
        return None
    contexts = Contexts(grid, base, row_scales, column_scales, sides[0], sides[1], bounds)
    found = unpack_tables(packed, at, contexts.cells, tables)
    if found is None or -(-found[1] // 8) != packed.size:
        return None
    return Model(contexts, found[0])


def _lines(contexts: Contexts) -> list[npt.NDArray[np.int64]]:
    lines = [contexts.row_scales, contexts.column_scales] if contexts.scaled else []
    for component in range(contexts.rank):
        lines += [contexts.row_factors[component], contexts.column_factors[component]]
    return [line.astype(np.int64) for line in lines]


def _best(line: npt.NDArray[np.int64]) -> int:
    return min(range(1 << PLAIN_BITS), key=lambda plain: rice_bits(line, plain))


def _line(packed: npt.NDArray[np.uint8], at: int, length: int, most: int) -> tuple[int, npt.NDArray[np.int8]]:
    values = np.zeros(length, np.int64)
    if length and at >= 0:
        at = get_rice(packed, at + PLAIN_BITS, values, get_bits(packed, at, PLAIN_BITS), most)
    return at, values.astype(np.int8)

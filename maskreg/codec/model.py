"""A coded block's model, contexts and tables, as bits. FORMAT.md section 5.2 has their order.

Scales and factors are *lines* of small signed integers, one per row or column. A line begins with its Rice parameter k
in 3 bits, the one under which it is shortest; see :mod:`maskreg.codec.bits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import PLAIN_BITS, get_bits, get_rice, put_bits, put_rice, rice_bits
from maskreg.codec.contexts import MAX_FACTOR, MAX_SCALE, SIZES, Contexts, rows_of
from maskreg.codec.grid import Grid
from maskreg.codec.tables import Tables, pack_tables, unpack_tables
from maskreg.jit import kernel

_BOUND_BITS = 15

_TABLE_BYTES = 64 * 4 + 8
"""More than a packed table ever takes."""

Lines = npt.NDArray[np.int8]
"""``[components, n]``."""


@dataclass(frozen=True)
class Model:
    """Contexts and tables of a block."""

    contexts: Contexts
    tables: Tables


class ModelShape(NamedTuple):
    """What a block's header says of its model.

    Attributes:
        n: coordinates of the block.
        grid: where they lie; no wider than ``n`` when there are scales or factors.
        base: of the contexts.
        scaled: whether there are scales.
        rank: of the factors.
        tables: how many.
    """

    n: int
    grid: Grid
    base: int
    scaled: bool
    rank: int
    tables: int


def side_bits(contexts: Contexts) -> int:
    """Bits that scales and factors take."""
    return sum(_lines_bits(lines) for lines in _lines(contexts))


def pack_model(model: Model) -> bytes:
    """The model as bits, padded to a byte."""
    contexts = model.contexts
    room = side_bits(contexts) // 8 + 64 + len(model.tables.of_cell) + len(model.tables.freqs) * _TABLE_BYTES
    bits = np.zeros(room, np.uint8)
    at = 0
    for lines in _lines(contexts):
        at = _put_lines(bits, at, lines)
    if contexts.rank:
        for bound in contexts.bounds.tolist():
            at = put_bits(bits, at, bound, _BOUND_BITS)
    at = pack_tables(bits, at, model.tables)
    return bits[: -(-at // 8)].tobytes()


def unpack_model(packed: npt.NDArray[np.uint8], shape: ModelShape) -> Model | None:
    """The model in ``packed``; None when it is invalid or anything is left over.

    Args:
        packed: uint8.
        shape: of the header.
    """
    grid, rank = shape.grid, shape.rank
    rows = rows_of(grid, shape.n)
    if (rank + shape.scaled) * (rows + grid.width) > 8 * packed.size:
        # Each value takes at least a bit. Checked before memory is allocated for them: a short block cannot claim much.
        return None
    row_scales, column_scales = (np.zeros((int(shape.scaled), length), np.int8) for length in (rows, grid.width))
    row_factors, column_factors = (np.zeros((rank, length), np.int8) for length in (rows, grid.width))
    at = _get_lines(packed, 0, row_scales, column_scales, MAX_SCALE)
    if at >= 0:
        at = _get_lines(packed, at, row_factors, column_factors, MAX_FACTOR)
    if at < 0:
        return None
    bounds = np.zeros(SIZES - 1, np.int16)
    if rank:
        for i in range(SIZES - 1):
            bounds[i] = get_bits(packed, at, _BOUND_BITS)
            at += _BOUND_BITS
    contexts = Contexts(
        grid, shape.base, row_scales.reshape(-1), column_scales.reshape(-1), row_factors, column_factors, bounds
    )
    unpacked = unpack_tables(packed, at, contexts.cells, shape.tables)
    if unpacked is None:
        return None
    tables, end = unpacked
    return Model(contexts, tables) if -(-end // 8) == packed.size else None


def _lines(contexts: Contexts) -> list[tuple[Lines, Lines]]:
    """Pairs of row and column lines: the scales if there are any, then the factors if there are any."""
    scales = [(contexts.row_scales[None], contexts.column_scales[None])] if contexts.scaled else []
    return scales + ([(contexts.row_factors, contexts.column_factors)] if contexts.rank else [])


@kernel
def _best_rice(line: npt.NDArray[np.int8]) -> tuple[int, int]:
    """The Rice parameter under which a line is shortest, and the bits that it then takes."""
    best, least = 0, rice_bits(line, 0)
    for plain in range(1, 1 << PLAIN_BITS):
        bits = rice_bits(line, plain)
        if bits >= least:
            # Bits are convex in k: each step adds a bit to every value and saves ever less of the quotients.
            break
        best, least = plain, bits
    return best, least


@kernel
def _lines_bits(lines: tuple[Lines, Lines]) -> int:
    total = 0
    for component in range(lines[0].shape[0]):
        for side in lines:
            total += PLAIN_BITS + _best_rice(side[component])[1]
    return total


@kernel
def _put_lines(bits: npt.NDArray[np.uint8], at: int, lines: tuple[Lines, Lines]) -> int:
    for component in range(lines[0].shape[0]):
        for side in lines:
            plain, _ = _best_rice(side[component])
            at = put_rice(bits, put_bits(bits, at, plain, PLAIN_BITS), side[component], plain)
    return at


@kernel
def _get_lines(packed: npt.NDArray[np.uint8], at: int, rows: Lines, columns: Lines, most: int) -> int:
    for component in range(rows.shape[0]):
        for side in (rows, columns):
            at = get_rice(packed, at + PLAIN_BITS, side[component], get_bits(packed, at, PLAIN_BITS), most)
            if at < 0:
                return -1
    return at

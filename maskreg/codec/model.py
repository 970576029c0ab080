"""A coded block's model, contexts and tables, as bits. FORMAT.md section 5.2 has their order.

Scales and factors are *lines* of small signed integers, one per row or column. A line begins with its Rice parameter k
in 3 bits, the one under which it is shortest; see :mod:`maskreg.codec.bits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.bits import PLAIN_BITS, Bits, Ints, Reader, best_rice, fixed, pack_flags, rice
from maskreg.codec.contexts import MAX_FACTOR, MAX_SCALE, SIZES, Contexts, rows_of
from maskreg.codec.grid import Grid
from maskreg.codec.rans import TOKENS
from maskreg.codec.tables import Tables, pack_tables, unpack_tables
from maskreg.native import Library, library

_BOUND_BITS = 15

_VALUE_BYTES = 2
"""More than a scale or factor takes: the best Rice parameter is no worse than 7, under which it takes 9 bits."""

_TABLE_BYTES = 64 * 4 + 8
"""More than a packed table ever takes."""

_SPARE_BYTES = 64
"""More than parameters and bounds take, and what the kernel writes beyond the end."""


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

    def fits(self, size: int) -> bool:
        """Whether the lines may fit ``size`` bytes: each value takes at least a bit.

        Checked before there is memory for them, so a short block cannot claim much.
        """
        return (self.rank + self.scaled) * (rows_of(self.grid, self.n) + self.grid.width) <= 8 * size


def side_bits(contexts: Contexts) -> int:
    """Bits that scales and factors take."""
    if compiled := library():
        structure, _arrays = _structure(compiled, contexts, None)
        bits: int = compiled.lib.maskreg_side_bits(structure)
        return bits
    return sum(PLAIN_BITS + best_rice(line)[1] for line in _lines(contexts))


def pack_model(model: Model) -> bytes:
    """The model as bits, padded to a byte."""
    contexts, tables = model.contexts, model.tables
    if compiled := library():
        structure, _arrays = _structure(compiled, contexts, tables)
        values = (contexts.rank + contexts.scaled) * (structure.rows + structure.width)
        packed = np.empty(
            _VALUE_BYTES * values + len(tables.of_cell) + len(tables.freqs) * _TABLE_BYTES + _SPARE_BYTES, np.uint8
        )
        bits = compiled.lib.maskreg_pack_model(structure, compiled.write(packed))
        return packed[: -(-bits // 8)].tobytes()
    flags = []
    for line in _lines(contexts):
        plain, _ = best_rice(line)
        flags += [fixed(plain, PLAIN_BITS), rice(line, plain)]
    if contexts.rank:
        flags.append(fixed(contexts.bounds, _BOUND_BITS))
    return pack_flags(flags + pack_tables(tables))


def unpack_model(packed: Bits, shape: ModelShape) -> Model | None:
    """The model in ``packed``; None when it is invalid or anything is left over.

    Args:
        packed: uint8.
        shape: of the header.
    """
    grid, rank = shape.grid, shape.rank
    if not shape.fits(packed.size):
        return None
    rows = rows_of(grid, shape.n)
    row_scales, column_scales = (np.zeros(int(shape.scaled) * length, np.int8) for length in (rows, grid.width))
    row_factors, column_factors = (np.zeros((rank, length), np.int8) for length in (rows, grid.width))
    contexts = Contexts(grid, shape.base, row_scales, column_scales, row_factors, column_factors)
    tables = Tables(np.zeros(contexts.cells, np.uint8), np.zeros((shape.tables, TOKENS), np.uint16))
    if compiled := library():
        structure, _arrays = _structure(compiled, contexts, tables)
        end = compiled.lib.maskreg_unpack_model(compiled.read(packed), packed.size, structure)
    else:
        end = _fill(Reader(packed), contexts, tables)
    return Model(contexts, tables) if end >= 0 and -(-end // 8) == packed.size else None


def _fill(reader: Reader, contexts: Contexts, tables: Tables) -> int:
    """Fill contexts and tables; returns the bit after them, or -1 when they are invalid."""
    for number, line in enumerate(_lines(contexts)):
        most = MAX_SCALE if contexts.scaled and number < 2 else MAX_FACTOR
        values = reader.rice(line.size, reader.fixed(PLAIN_BITS), most)
        if values is None:
            return -1
        line[:] = values
    if contexts.rank:
        contexts.bounds[:] = [reader.fixed(_BOUND_BITS) for _ in range(SIZES - 1)]
    unpacked = unpack_tables(reader, len(tables.of_cell), len(tables.freqs))
    if unpacked is None:
        return -1
    tables.of_cell[:], tables.freqs[:] = unpacked.of_cell, unpacked.freqs
    return reader.at


def _lines(contexts: Contexts) -> list[Ints]:
    """Scales if there are any, then factors component by component; rows before columns."""
    lines = [contexts.row_scales, contexts.column_scales] if contexts.scaled else []
    for pair in zip(contexts.row_factors, contexts.column_factors, strict=True):
        lines += pair
    return lines


def _structure(compiled: Library, contexts: Contexts, tables: Tables | None) -> tuple[Any, Any]:
    """``maskreg_model`` of kernels.h, and what has to live as long as it."""

    def read(*arrays: npt.NDArray[Any]) -> list[Any]:
        return [compiled.read(np.ascontiguousarray(array)) for array in arrays]

    none = compiled.ffi.NULL
    scales = read(contexts.row_scales, contexts.column_scales) if contexts.scaled else [none] * 2
    factors = read(contexts.row_factors, contexts.column_factors, contexts.bounds) if contexts.rank else [none] * 3
    own = read(tables.of_cell, tables.freqs) if tables else [none] * 2
    rows = contexts.row_factors.shape[1] if contexts.rank else contexts.row_scales.size
    cells, count = (len(tables.of_cell), len(tables.freqs)) if tables else (0, 0)
    fields = (rows, contexts.grid.width, contexts.scaled, contexts.rank, cells, count, *scales, *factors, *own)
    return compiled.ffi.new("maskreg_model *", fields), fields

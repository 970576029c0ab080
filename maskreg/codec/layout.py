"""Bytes of a block: what its header, model and directory say, and where its sub-blocks are.

Every block begins with 8 bytes: n (u32), kind, number of sub-blocks, rank, flags. FORMAT.md section 5.1 has the table.

    same    head                                    the target's codes equal the source's
    raw     head, n codes (u16)                     nothing was gained by coding
    coded   head, 16 bytes more, model, directory, sub-block 0, sub-block 1, ...
    sparse  head, model, directory, sub-block 0, ...        few coordinates move: sparse.py
    others  head, side information, one or two blocks       what changed is no small step: derived.py

Sub-blocks are what decodes independently: a part of a block can be read without the rest, two decode side by side on
one core, and a GPU decodes all at once. Each holds the states of its 16 lanes (64 bytes), its words and its extra bits.
The directory has two u32 per sub-block, its words and its extra bits; that says where each begins:

    n = 10,000 in 2 sub-blocks: each has 4,096 * ceil(10,000 / 8,192) = 8,192 coordinates, the last 1,808
    directory (700, 90) (150, 20): sub-block 0 takes 64 + 2 * 700 + ceil(90 / 8) = 1,476 bytes, sub-block 1 takes 367

The model of a coded block is its contexts and tables, as bits (FORMAT.md section 5.2). Scales and factors are *lines*
of small signed integers, one per row or column. A line begins with its Rice parameter k in 3 bits, the one under which
it is shortest.

Everything here comes from outside, so all of it is checked before it is used. Headers are checked here for all; model
and directory of a coded block are read twice: by :class:`Layout` for GPUs, and on the CPU by the kernel, which refuses
what Layout refuses, in the same words.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.codec.base import Bits, Grid
from maskreg.codec.contexts import MAX_RANK, TILE, Contexts, rows_of
from maskreg.codec.tables import MAX_TABLES, Tables
from maskreg.codec.ulp_steps import TOKENS
from maskreg.errors import CorruptError
from maskreg.native import Library, library
from maskreg.tensors.info import BLOCK_NUMEL

_VALUE_BYTES = 2
"""More than a scale or factor takes: the best Rice parameter is no worse than 7, under which it takes 9 bits."""

_TABLE_BYTES = 64 * 4 + 8  # more than a packed table ever takes
_SPARE_BYTES = 64  # more than parameters and bounds take, and what the kernel writes beyond the end


@dataclass(frozen=True)
class Model:
    """Contexts and tables of a block."""

    contexts: Contexts
    tables: Tables


class ModelShape(NamedTuple):
    """What a block's header says of its model. The grid is no wider than ``n`` when there are scales or factors."""

    n: int
    grid: Grid
    base: int
    scaled: bool
    rank: int
    tables: int

    def fits(self, size: int) -> bool:
        """Whether the lines can fit ``size`` bytes, a bit at least for each value: a short block claims little."""
        return (self.rank + self.scaled) * (rows_of(self.grid, self.n) + self.grid.width) <= 8 * size


def side_bits(contexts: Contexts) -> int:
    """Bits that scales and factors take."""
    compiled = library()
    structure, _arrays = _structure(compiled, contexts, None)
    bits: int = compiled.lib.maskreg_side_bits(structure)
    return bits


def pack_model(model: Model) -> bytes:
    """The model as bits, padded to a byte."""
    contexts, tables = model.contexts, model.tables
    compiled = library()
    structure, _arrays = _structure(compiled, contexts, tables)
    values = (contexts.rank + contexts.scaled) * (structure.rows + structure.width)
    packed = np.empty(
        _VALUE_BYTES * values + len(tables.of_cell) + len(tables.freqs) * _TABLE_BYTES + _SPARE_BYTES, np.uint8
    )
    bits = compiled.lib.maskreg_pack_model(structure, compiled.write(packed))
    return packed[: -(-bits // 8)].tobytes()


def unpack_model(packed: Bits, shape: ModelShape) -> Model | None:
    """The model in ``packed``; None when it is invalid or anything is left over."""
    grid, rank = shape.grid, shape.rank
    if not shape.fits(packed.size):
        return None
    rows = rows_of(grid, shape.n)
    row_scales, column_scales = (np.zeros(int(shape.scaled) * length, np.int8) for length in (rows, grid.width))
    row_factors, column_factors = (np.zeros((rank, length), np.int8) for length in (rows, grid.width))
    contexts = Contexts(grid, shape.base, row_scales, column_scales, row_factors, column_factors)
    tables = Tables(np.zeros(contexts.cells, np.uint8), np.zeros((shape.tables, TOKENS), np.uint16))
    compiled = library()
    structure, _arrays = _structure(compiled, contexts, tables)
    end = compiled.lib.maskreg_unpack_model(compiled.read(packed), packed.size, structure)
    return Model(contexts, tables) if end >= 0 and -(-end // 8) == packed.size else None


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


SAME, RAW, CODED, SPARSE = 0, 1, 2, 3
SCALED, APART, ZEROED, ROWS = 4, 5, 6, 7
"""Kinds of blocks. The second four hold other blocks, of a lower kind: derived.py."""

LANES = 16
"""Coders of a sub-block, which take turns."""

LOWEST_STATE = 1 << 16
"""A lane's state before the first token is coded and after the last is decoded; between tokens it is no smaller."""

STATE_BYTES = 4 * LANES
"""Bytes at the beginning of a sub-block: the states of its lanes."""

ENTRY_BYTES = 8
"""Bytes of a sub-block in the directory."""

_HEAD = struct.Struct("<IBBBB")
_CODED_HEAD = struct.Struct("<IIhHI")
_SCALED = 1
_MAX_BASE = 512

HEAD_BYTES = _HEAD.size

MODEL_START = _HEAD.size + _CODED_HEAD.size
"""Byte of a coded block where its model begins."""

BAD_MODEL = "its contexts or tables are invalid"
SHORT_DIRECTORY = "its directory is truncated"
BAD_DIRECTORY = "its sub-blocks do not end where it ends"
"""What is said of damaged blocks, by the kernel too."""


class Head(NamedTuple):
    """The first 8 bytes of a block.

    Attributes:
        sub_blocks: how many; 0 where the block is neither coded nor sparse.
        rank: components of the prediction; in a sparse block, the exponent of the first class; in one of exponents
            apart, the usual one; in one of zeros, 1 if all are positive.
        flags: 1 if there are scales; in a sparse block, the number of classes.
    """

    n: int
    kind: int
    sub_blocks: int = 0
    rank: int = 0
    flags: int = 0

    @classmethod
    def read(cls, block: bytes | memoryview) -> Head:
        """Read and check them; rank and flags are left to :class:`Layout` and ``SparseLayout``."""
        if len(block) < _HEAD.size:
            raise CorruptError("block", f"{len(block)} bytes are too few for its header")
        head = cls(*_HEAD.unpack_from(block))
        raw_bytes = _HEAD.size + 2 * head.n
        exact = {SAME: _HEAD.size, RAW: raw_bytes}.get(head.kind, len(block))
        is_coded = head.kind in (CODED, SPARSE)
        most_rank = {APART: 255, ZEROED: 1}.get(head.kind, 0)
        if not 1 <= head.n <= BLOCK_NUMEL or head.kind > ROWS or len(block) != exact:
            raise CorruptError("block", "its header is invalid")
        if not is_coded and (head.sub_blocks or head.flags or head.rank > most_rank):
            raise CorruptError("block", "its header is invalid")
        if len(block) > raw_bytes:
            raise CorruptError("block", f"{len(block)} bytes are more than {head.n} raw values take")
        count = head.sub_blocks
        if is_coded and not 0 <= (count - 1) * sub_block_numel(head.n, max(count, 1)) < head.n:
            raise CorruptError("block", f"{head.n} values cannot have {count} sub-blocks")
        return head

    def pack(self) -> bytes:
        """The 8 bytes."""
        return _HEAD.pack(*self)


def sub_block_numel(n: int, count: int) -> int:
    """Coordinates of each of ``count`` sub-blocks but the last, which can have fewer: a multiple of 4,096."""
    return -(-n // (count * TILE)) * TILE


def pack_coded(n: int, count: int, model: Model) -> bytes:
    """A coded block up to its directory: header and model."""
    contexts = model.contexts
    packed = pack_model(model)
    head = Head(n, CODED, count, contexts.rank, _SCALED if contexts.scaled else 0)
    coded = _CODED_HEAD.pack(*contexts.grid, contexts.base, len(model.tables.freqs), len(packed))
    return b"".join([head.pack(), coded, packed])


class CodedHead(NamedTuple):
    """What a coded block says before its model."""

    n: int
    sub_blocks: int
    shape: ModelShape
    model_bytes: int

    @classmethod
    def read(cls, block: bytes | memoryview) -> CodedHead:
        """Read and check it; what :meth:`Head.read` checks was checked."""
        if len(block) < MODEL_START:
            raise CorruptError("block", "its header is truncated")
        n, _, sub_blocks, rank, flags = _HEAD.unpack_from(block)
        width, column, base, tables, model_bytes = _CODED_HEAD.unpack_from(block, _HEAD.size)
        if (
            rank > MAX_RANK
            or flags > _SCALED
            or not 0 <= base < _MAX_BASE
            or not 1 <= tables <= MAX_TABLES
            or not column < width
            or ((rank or flags) and width > n)
            or model_bytes > len(block) - MODEL_START
        ):
            raise CorruptError("block", "its header is invalid")
        shape = ModelShape(n, Grid(width, column), base, bool(flags), rank, tables)
        if not shape.fits(model_bytes):
            raise CorruptError("block", BAD_MODEL)
        return cls(n, sub_blocks, shape, model_bytes)

    @property
    def size(self) -> int:
        """Coordinates of each sub-block; the last can have fewer."""
        return sub_block_numel(self.n, self.sub_blocks)


class Layout:
    """A coded block that was read up to its sub-blocks.

    All of it is checked except what :meth:`Head.read` checks.

    Attributes:
        size: coordinates of each sub-block; the last can have fewer.
        block: uint8, the whole block.
        directory: int64 ``[sub-blocks, 2]``: words and extra bits of each.
        starts: int64 ``[sub-blocks + 1]``: the byte where each begins, and the end of the last.
    """

    def __init__(self, block: bytes | memoryview) -> None:
        """Read header, model and directory."""
        head = CodedHead.read(block)
        self.n, self.size = head.n, head.size
        self.block = np.frombuffer(block, np.uint8)
        model = unpack_model(self.block[MODEL_START : MODEL_START + head.model_bytes], head.shape)
        if model is None:
            raise CorruptError("block", BAD_MODEL)
        self.model = model
        start, count = MODEL_START + head.model_bytes, -(-self.n // self.size)
        if len(block) - start < ENTRY_BYTES * count:
            raise CorruptError("block", SHORT_DIRECTORY)
        self.directory = np.frombuffer(block, "<u4", 2 * count, start).reshape(count, 2).astype(np.int64)
        sizes = STATE_BYTES + 2 * self.directory[:, 0] + -(-self.directory[:, 1] // 8)
        self.starts = start + ENTRY_BYTES * count + np.concatenate([[0], np.cumsum(sizes)])
        if self.starts[-1] != len(block):
            raise CorruptError("block", BAD_DIRECTORY)

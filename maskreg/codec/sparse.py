"""Blocks in which few coordinates move: their bytes. FORMAT.md section 5.6 has every bit.

    head                     n (u32), kind, number of sub-blocks, exponent of the first class, number of classes
    model                    from which exponent on ULP steps are 1; hazards by class              movers.py
    with several sub-blocks  words of each (u32)
    sub-blocks               a state (u64) and words (u32)                                         movers.py

Side information is short, because a block of a small matrix can have no more than some hundred bytes: no tables, and no
lengths that follow from others.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from maskreg.codec.base import Block, Codes, Movers
from maskreg.codec.layout import HEAD_BYTES, SPARSE, Head, sub_block_numel
from maskreg.codec.movers import (
    CLASSES,
    COSTS,
    HAZARDS,
    LOGARITHM_BITS,
    LOGARITHMS,
    NONE,
    STATE_BYTES,
    USUAL_STEPS,
    Hazards,
    Indexes,
    decode_movers,
    encode_movers,
    movers_structure,
    pack_indexes,
    unpack_indexes,
)
from maskreg.codec.ulp_steps import EXPONENTS, Counts
from maskreg.errors import CorruptError
from maskreg.native import Library, library

_WORD_BYTES, _ONES_BITS = 4, 5

NO_ONES = 31
"""Stored where movers of any exponent can move by more than one ULP."""

_MODEL_BYTES = 256  # more than a model takes
_PART_BYTES = 3_000  # least bytes of a sub-block of several, since each takes 12 more
_MOST_PARTS = 8  # sub-blocks that decode side by side on one core

_ALIKE = 1 << 15
"""Sub-blocks whose distance is a multiple of so many coordinates would drive each other out of the caches."""


_SAMPLED = ((1 << 20, 8), (1 << 17, 2))
"""Of the tiles of a block of at least so many coordinates, exponents are counted in one of so many."""


class SparseModel(NamedTuple):
    """What a block says before its sub-blocks.

    Attributes:
        indexes: uint8 ``[classes]``, of hazards; classes without one do not move.
        ones: how far above the first class movers always move by one ULP; :data:`NO_ONES` for nowhere.
    """

    first: int
    indexes: Indexes
    ones: int

    def hazards(self) -> Hazards:
        """What coordinates move by."""
        by_class = np.zeros(CLASSES, np.uint16)
        by_class[: self.indexes.size] = HAZARDS[self.indexes]
        return Hazards(self.first, by_class, EXPONENTS if self.ones == NO_ONES else self.first + self.ones)


def encode_sparse(source: Codes, movers: Movers) -> bytes:
    """Code a block in which something moves."""
    counts = count_movers(source, movers)
    first, indexes, bits = choose_hazards(counts)
    far = counts[2].nonzero()[0]
    ones = min(max(int(far[-1]) + 1 - first, 0), NO_ONES) if far.size else 0
    count = max(1, min((bits >> LOGARITHM_BITS + 3) // _PART_BYTES, _MOST_PARTS))
    while count > 1 and sub_block_numel(source.size, count) % _ALIKE == 0:
        count -= 1
    return write_sparse(source, movers, SparseModel(first, indexes, ones), count)


def write_sparse(source: Codes, movers: Movers, model: SparseModel, count: int) -> bytes:
    """Code a block with this model, in so many sub-blocks."""
    n = source.size
    parts = encode_movers(source, movers, model.hazards(), sub_block_numel(n, count))
    sizes = [(len(part) - STATE_BYTES) // _WORD_BYTES for part in parts] if len(parts) > 1 else []
    head = Head(n, SPARSE, len(parts), model.first, model.indexes.size).pack()
    indexes, bits = pack_indexes(model.indexes)
    packed = model.ones | indexes << _ONES_BITS
    packed_bytes = packed.to_bytes(-(-(_ONES_BITS + bits) // 8), "little")
    return b"".join([head, packed_bytes, np.array(sizes, "<u4").tobytes(), *parts])


def count_movers(source: Codes, movers: Movers) -> Counts:
    """Coordinates by exponent: all, those that move, and those that move by more than one ULP; int64 ``[3, 256]``.

    Of a large block, all are estimated by a part.
    """
    n, counts = source.size, np.zeros((3, EXPONENTS), np.int64)
    every = next((every for least, every in _SAMPLED if n >= least), 1)
    compiled = library()
    own = movers_structure(compiled, movers)
    compiled.lib.maskreg_count_movers(
        compiled.read(source), n, every, own, movers.positions.size, compiled.write(counts)
    )
    counts[0] = counts[0] * n // counts[0].sum()
    return counts


def choose_hazards(counts: Counts) -> tuple[int, Indexes, int]:
    """The exponent of the first class, indexes of hazards, and how long it is to say where movers are.

    Windows are compared by the entropy of their classes: of the exponents inside, and of the sums at both ends.
    Bits count in :data:`~maskreg.codec.movers.LOGARITHM_BITS`.
    """
    compiled = library()
    chosen, least = np.empty(CLASSES + 1, np.uint8), compiled.ffi.new("int64_t *")
    classes: int = compiled.lib.maskreg_choose_hazards(
        compiled.read(counts), *_tables(compiled), compiled.write(chosen), least
    )
    return int(chosen[0]), chosen[1 : classes + 1], int(least[0])


@cache
def _tables(compiled: Library) -> tuple[Any, ...]:
    """Those that all blocks share."""
    return tuple(compiled.read(table) for table in (LOGARITHMS, COSTS, USUAL_STEPS))


class SparseLayout:
    """A block that was read up to its sub-blocks; all of it is checked except what :meth:`Head.read` checks.

    Attributes:
        size: coordinates of each sub-block; the last can have fewer.
        block: uint8, the whole block.
        starts: int64 ``[sub-blocks + 1]``: the byte where each begins, and the end of the last.
    """

    def __init__(self, block: Block) -> None:
        """Read head, model and directory."""
        head = Head.read(block)
        first, classes = head.rank, head.flags
        if not 1 <= classes <= CLASSES or first > EXPONENTS - CLASSES:
            raise CorruptError("block", "its header is invalid")
        self.block = np.frombuffer(block, np.uint8)
        model = int.from_bytes(block[HEAD_BYTES : HEAD_BYTES + _MODEL_BYTES], "little")
        unpacked = unpack_indexes(model >> _ONES_BITS, classes)
        if unpacked is None:
            raise CorruptError("block", "its hazards are invalid")
        indexes, bits = unpacked
        self.hazards = SparseModel(first, indexes, model & (1 << _ONES_BITS) - 1).hazards()
        self.size = sub_block_numel(head.n, head.sub_blocks)
        at, count = HEAD_BYTES + -(-(_ONES_BITS + bits) // 8), head.sub_blocks
        if count > 1:
            if self.block.size - at < _WORD_BYTES * count:
                raise CorruptError("block", "its directory is truncated")
            sizes = STATE_BYTES + _WORD_BYTES * np.frombuffer(self.block, "<u4", count, at).astype(np.int64)
            at += _WORD_BYTES * count
        else:
            sizes = np.array([self.block.size - at])
        self.starts = at + np.concatenate([[0], np.cumsum(sizes)])
        if self.starts[-1] != self.block.size or sizes.min() < STATE_BYTES or sizes[-1] % _WORD_BYTES:
            raise CorruptError("block", "its sub-blocks do not end where it ends")


def decode_sparse(layout: SparseLayout, source: Codes, before: Movers = NONE) -> Movers:
    """The movers of a block whose source others have changed before."""
    return decode_movers(source, layout.block, layout.starts, layout.hazards, layout.size, before)

"""Blocks in which few coordinates move: their bytes. FORMAT.md section 5.6 has every bit.

    head                     n (u32), kind, number of sub-blocks, exponent of the first class, number of classes
    model                    hazards and shares                                                    movers.py
    with several sub-blocks  words of each (u32)
    sub-blocks               a state (u64) and words (u32)                                         movers.py

Side information is short, without tables and without lengths that follow from others, because a block of a small matrix
can have no more than some hundred bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from maskreg.codec.base import Block, Codes, Movers
from maskreg.codec.layout import HEAD_BYTES, SPARSE, Head, sub_block_numel
from maskreg.codec.movers import (
    BINADES,
    CLASSES,
    COSTS,
    HAZARDS,
    LIKELY_LONGER,
    LIKELY_TOP,
    LOGARITHM_BITS,
    LOGARITHMS,
    NONE,
    SHARE_COSTS,
    SHARES,
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

_WORD_BYTES, _BINADE_BITS = 4, 5
_MODEL_BYTES = 256  # most that a model takes
_PART_BYTES = 3_000  # least bytes of a sub-block of several, since each takes 12 more
_MOST_PARTS = 16  # sub-blocks that decode side by side on one core

_SAMPLED = ((1 << 20, 32), (1 << 17, 4))
"""Of the tiles of a block of at least so many coordinates, exponents are counted in one of so many."""


class SparseModel(NamedTuple):
    """What a block says before its sub-blocks.

    Attributes:
        indexes: uint8 ``[classes]``, of hazards; classes without one do not move.
        shares: uint8 ``[classes]``, indexes of the shares of movers that move by more than one ULP.
        longer, tops: uint8 ``[binades]``, at most 29: indexes of shares, by the binade that a step reaches.
    """

    first: int
    indexes: Indexes
    shares: Indexes
    longer: Indexes
    tops: Indexes

    def hazards(self) -> Hazards:
        """The hazards and shares that the indexes stand for."""
        by_class, shares = np.zeros((2, CLASSES), np.uint16)
        by_class[: self.indexes.size], shares[: self.shares.size] = HAZARDS[self.indexes], SHARES[self.shares]
        longer, tops = (np.full(BINADES, SHARES[index], np.uint16) for index in (LIKELY_LONGER, LIKELY_TOP))
        longer[: self.longer.size], tops[: self.tops.size] = SHARES[self.longer], SHARES[self.tops]
        return Hazards(self.first, by_class, shares, longer, tops)

    def pack(self) -> bytes:
        """The bytes in a block; the first class is in its head."""
        packed = bits = 0
        for number, width in (
            *map(pack_indexes, self[1:3]),
            (self.longer.size, _BINADE_BITS),
            *map(pack_indexes, self[3:]),
        ):
            packed |= number << bits
            bits += width
        return packed.to_bytes(-(-bits // 8), "little")

    @classmethod
    def unpack(cls, packed: int, first: int, classes: int) -> tuple[SparseModel, int] | None:
        """The model, and how many bytes it takes; None where it is invalid."""
        lists: list[Indexes] = []
        count, bits = classes, 0
        for _ in cls._fields[1:]:
            if len(lists) == 2:
                count = packed >> bits & (1 << _BINADE_BITS) - 1
                bits += _BINADE_BITS
            unpacked = unpack_indexes(packed >> bits, count)
            if unpacked is None or count > BINADES:
                return None
            lists.append(unpacked[0])
            bits += unpacked[1]
        return cls(first, *lists), -(-bits // 8)


def encode_sparse(source: Codes, movers: Movers) -> bytes:
    """Code a block in which something moves."""
    model, bits = choose_model(count_movers(source, movers))
    count = max(1, min((bits >> LOGARITHM_BITS + 3) // _PART_BYTES, _MOST_PARTS))
    return write_sparse(source, movers, model, count)


def write_sparse(source: Codes, movers: Movers, model: SparseModel, count: int) -> bytes:
    """Code a block with this model, in so many sub-blocks."""
    n = source.size
    parts = encode_movers(source, movers, model.hazards(), sub_block_numel(n, count))
    sizes = [(len(part) - STATE_BYTES) // _WORD_BYTES for part in parts] if len(parts) > 1 else []
    head = Head(n, SPARSE, len(parts), model.first, model.indexes.size).pack()
    return b"".join([head, model.pack(), np.array(sizes, "<u4").tobytes(), *parts])


def count_movers(source: Codes, movers: Movers) -> Counts:
    """Five counts by exponent, int64 ``[5, 256]``.

    All coordinates, of a large block estimated by a part; movers; movers by more than one ULP. Then, by the binade in
    which they end: steps by more than one ULP, and how many of them have a top bit of 1.
    """
    n, counts = source.size, np.zeros((5, EXPONENTS), np.int64)
    every = next((every for least, every in _SAMPLED if n >= least), 1)
    compiled = library()
    own = movers_structure(compiled, movers)
    compiled.lib.maskreg_count_movers(
        compiled.read(source), n, every, own, movers.positions.size, compiled.write(counts)
    )
    counts[0] = counts[0] * n // counts[0].sum()
    return counts


def choose_model(counts: Counts) -> tuple[SparseModel, int]:
    """What to say before the sub-blocks, and how long it is to say where movers are.

    Windows of exponents are compared by the entropy of their classes: of the exponents inside, and of the sums at both
    ends. Bits count in :data:`~maskreg.codec.movers.LOGARITHM_BITS`.
    """
    compiled = library()
    chosen, least = np.empty(3 + 2 * (CLASSES + BINADES), np.uint8), compiled.ffi.new("int64_t *")
    compiled.lib.maskreg_choose_model(
        compiled.read(counts), *_tables(compiled), LIKELY_LONGER, LIKELY_TOP, compiled.write(chosen), least
    )
    first, classes, binades = chosen[:3].tolist()
    indexes, shares = chosen[3 : 3 + 2 * CLASSES].reshape(2, CLASSES)[:, :classes]
    longer, tops = chosen[3 + 2 * CLASSES :].reshape(2, BINADES)[:, :binades]
    return SparseModel(first, indexes, shares, longer, tops), int(least[0])


@cache
def _tables(compiled: Library) -> tuple[Any, ...]:
    """The tables that choosing a model reads."""
    return tuple(compiled.read(table) for table in (LOGARITHMS, COSTS, SHARE_COSTS, USUAL_STEPS))


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
        packed = int.from_bytes(block[HEAD_BYTES : HEAD_BYTES + _MODEL_BYTES], "little")
        unpacked = SparseModel.unpack(packed, first, classes)
        if unpacked is None or unpacked[1] > _MODEL_BYTES:
            raise CorruptError("block", "its model is invalid")
        model, size = unpacked
        self.hazards = model.hazards()
        self.size = sub_block_numel(head.n, head.sub_blocks)
        at, count = HEAD_BYTES + size, head.sub_blocks
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
        # Encoders never write less than 2^32; decoders would differ in when they refill such a state.
        if not self.block[self.starts[:-1, None] + np.arange(4, STATE_BYTES)].any(axis=1).all():
            raise CorruptError("block", "a state is too small")


def decode_sparse(layout: SparseLayout, source: Codes, before: Movers = NONE) -> Movers:
    """The movers of a block whose source others have changed before."""
    return decode_movers(source, layout.block, layout.starts, layout.hazards, layout.size, before)

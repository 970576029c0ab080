"""The work on one span of a pair: read, cast, diff, code, hash. Pure but for reading; runs on any thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.artifact.writer import BlockRecord
from maskreg.checkpoint.ahead import LeafReader
from maskreg.checkpoint.base import Checkpoint
from maskreg.codec import Codec, grid_at
from maskreg.codec.base import Movers
from maskreg.codec.movers import movers_structure
from maskreg.device import Device, HostDevice
from maskreg.digest import FINGERPRINT_BYTES, LeafHashes, leaf_hashes
from maskreg.flow.extract.pairing import Pair, StoredAs
from maskreg.mask import Counts, pack, packed_bytes, unpack
from maskreg.native import library
from maskreg.parallel import Buffers
from maskreg.tensors.cast import is_finite, to_bf16
from maskreg.tensors.info import TensorInfo, blocks_of
from maskreg.tensors.rules import Exact, Rule

Codes = npt.NDArray[np.uint16]


class PairSpan(NamedTuple):
    """Elements ``[start, stop)`` of a pair; either side can end before."""

    pair: Pair
    start: int
    stop: int


@dataclass(frozen=True)
class BlockDiff:
    """Everything that an artifact stores of one span, and what the totals need.

    Attributes:
        source_leaves, target_leaves: hashes of the values that the artifact records; None for an absent side.
        differs: any stored bit differs, or the sides cannot be compared.
        block: mask, counts and coded values; None for a pair without a mask.
        source_bytes, target_bytes: raw bytes of tensors stored whole, if requested.
        read_bytes: bytes read from both sides.
    """

    span: PairSpan
    source_leaves: LeafHashes | None
    target_leaves: LeafHashes | None
    differs: bool
    block: BlockRecord | None = None
    source_bytes: bytes = b""
    target_bytes: bytes = b""
    read_bytes: int = 0


@dataclass(frozen=True)
class Differ:
    """Diffs spans of two checkpoints, on any thread, each of which reads into memory of its own.

    The codec codes delta and reverse; None for a mask only.
    """

    source: Checkpoint
    target: Checkpoint
    rule: Rule
    codec: Codec | None
    reversible: bool
    device: Device
    _buffers: Buffers = field(default_factory=partial(Buffers, huge=False), repr=False)

    def __call__(self, span: PairSpan) -> BlockDiff:
        """Diff one span."""
        sides = self._side("source", span), self._side("target", span)
        comparing = self._comparing(span)
        for before, after in zip_longest(*(side.read() if side else () for side in sides)):
            if comparing:
                comparing.add(before, after)
        source, target = sides
        if span.pair.stored_as.masked and source and target:
            return self._masked(span, source, target, comparing)
        stored_whole = span.pair.stored_as in (StoredAs.WHOLE, StoredAs.REMOVED)
        return BlockDiff(
            span,
            source.leaves if source else None,
            target.leaves if target else None,
            differs=stored_whole or not (source and target and np.array_equal(source.values, target.values)),
            source_bytes=source.values.tobytes() if source and stored_whole and self.reversible else b"",
            target_bytes=target.values.tobytes() if target and stored_whole and self.codec else b"",
            read_bytes=sum(side.values.nbytes for side in sides if side),
        )

    def _masked(self, span: PairSpan, source_side: _Side, target_side: _Side, comparing: Comparing | None) -> BlockDiff:
        pair, before, after = span.pair, source_side.values, target_side.values
        read_bytes = before.nbytes + after.nbytes
        source = to_bf16(before, pair.source.dtype if pair.source else "")
        target = to_bf16(after, pair.target.dtype if pair.target else "")
        mask = comparing.result if comparing else self._compare(source, target)
        nan, inf = nans_and_infinities(target) if mask.nonfinite else (0, 0)
        if pair.stored_as is StoredAs.CAST:
            after = target
        if self.codec and pair.stored_as.coded and not self.rule.keeps_target:
            # A rule with a threshold drops small changes: the result keeps the source's bits there.
            after = np.where(unpack(mask.packed, before.size), after, before)
        differing, same_dtype = mask.differing, before.dtype == after.dtype
        if same_dtype and (before is not source or after is not target):
            differing = int(np.count_nonzero(before != after))
        # An empty tensor has no block.
        codec = self.codec if pair.stored_as.coded and before.size else None
        grid = grid_at(pair.source.shape if pair.source else (), span.start)
        return BlockDiff(
            span,
            source_side.leaves,
            target_side.leaves if after is target_side.values else leaf_hashes(after),
            differs=bool(differing) or not same_dtype,
            block=BlockRecord(
                mask.packed,
                Counts(before.size, mask.nnz, differing, mask.energy, mask.nonfinite, nan, inf),
                codec.encode(before, after, grid) if codec else None,
                codec.encode(after, before, grid) if codec and self.reversible else None,
            ),
            read_bytes=read_bytes,
        )

    def _comparing(self, span: PairSpan) -> Comparing | None:
        """Compares both sides as they are read, which needs no other memory: bf16 by the exact rule on the CPU."""
        pair = span.pair
        infos = [pair.source, pair.target]
        if not pair.stored_as.masked or not all(info and info.dtype == "BF16" for info in infos):
            return None
        if not isinstance(self.rule, Exact) or not isinstance(self.device, HostDevice):
            return None
        return Comparing(np.empty(packed_bytes(span.stop - span.start), np.uint8))

    def _compare(self, source: Codes, target: Codes) -> Comparison:
        if isinstance(self.rule, Exact) and isinstance(self.device, HostDevice):
            return compare(source, target, np.empty(packed_bytes(source.size), np.uint8))
        moved = self._buffers.array("moved", source.size, np.bool_)
        self.device.moved(self.rule, source, target, moved)
        nnz, packed = int(np.count_nonzero(moved)), pack(moved)
        np.not_equal(source, target, out=moved)
        differing = int(np.count_nonzero(moved))
        # Of which a side is NaN or infinite.
        nonfinite = source.size - int(np.count_nonzero(is_finite(source) & is_finite(target)))
        return Comparison(packed, nnz, differing, nonfinite, energy_of(source, target))

    def _side(self, name: Literal["source", "target"], span: PairSpan) -> _Side | None:
        tensor: TensorInfo | None = getattr(span.pair, name)
        if tensor is None:
            return None
        start, stop = min(span.start, tensor.numel), min(span.stop, tensor.numel)
        memory = self._buffers.bytes(name, (stop - start) * tensor.item_bytes)
        return _Side(LeafReader(getattr(self, name), span.pair.name, start, stop, memory))


class _Side:
    """One side of a span: its values, and their hashes."""

    def __init__(self, reader: LeafReader) -> None:
        self.start, self.stop = reader.start, reader.stop
        self._reader, self._hashes = reader, [np.empty((0, FINGERPRINT_BYTES), np.uint8)]

    def read(self) -> Iterator[npt.NDArray[Any]]:
        """Read and hash leaf after leaf."""
        for _, values in self._reader.leaves():
            self._hashes.append(leaf_hashes(values))
            yield values

    @property
    def values(self) -> npt.NDArray[Any]:
        """What was read."""
        return self._reader.values

    @property
    def leaves(self) -> LeafHashes:
        """Hashes of what was read."""
        return np.concatenate(self._hashes)


def spans_of(pairs: tuple[Pair, ...]) -> Iterator[PairSpan]:
    """Blocks of all pairs, in order; an empty tensor has one empty span, which carries its row."""
    for pair in pairs:
        if not pair.numel:
            yield PairSpan(pair, 0, 0)
        for start, stop in blocks_of(pair.numel):
            yield PairSpan(pair, start, stop)


_MANTISSA = 0x007F
_SUMS = 16
"""Sums that are added up side by side, as vectors do; their order is part of the result."""


class Comparison(NamedTuple):
    """How two blocks differ; see :class:`BlockDiff`."""

    packed: npt.NDArray[np.uint8]
    nnz: int
    differing: int
    nonfinite: int
    energy: float


class Comparing:
    """Compares a block under the exact rule, piece by piece, each while it is in the core's cache."""

    def __init__(self, packed: npt.NDArray[np.uint8]) -> None:
        """Begin; ``packed``, uint8 ``[packed_bytes(n)]``, becomes the mask."""
        self._packed = packed
        self._counts, self._sums = np.zeros(3, np.int64), np.zeros(_SUMS)
        self._done = 0

    def add(self, source: Codes, target: Codes) -> None:
        """Compare the next bf16 codes, uint16 ``[m]`` on both sides.

        M is a multiple of 64, except in the last piece.
        """
        packed = self._packed[self._done // 8 :][: packed_bytes(source.size)]
        self._done += source.size
        compiled = library()
        compiled.lib.maskreg_compare(
            compiled.read(source),
            compiled.read(target),
            source.size,
            compiled.write(packed),
            compiled.write(self._counts),
            compiled.write(self._sums),
        )

    @property
    def result(self) -> Comparison:
        """How the pieces so far differ."""
        nnz, differing, nonfinite = self._counts.tolist()
        return Comparison(self._packed, nnz, differing, nonfinite, sum(self._sums.tolist()))


def compare(source: Codes, target: Codes, packed: npt.NDArray[np.uint8]) -> Comparison:
    """Compare two blocks of bf16 codes, uint16 ``[n]``, under the exact rule; ``packed`` becomes the mask."""
    comparing = Comparing(packed)
    comparing.add(source, target)
    return comparing.result


def compare_movers(movers: Movers, replaced: Codes) -> tuple[npt.NDArray[np.bool_], float]:
    """Which movers of a block of bf16 codes moved by the exact rule, and the energy, as :func:`energy_of` gives it.

    ``replaced``: uint16 ``[k]``, the codes that the movers' take the place of.
    """
    compiled = library()
    moved, sums = np.empty(replaced.size, np.bool_), np.zeros(_SUMS)
    compiled.lib.maskreg_compare_movers(
        movers_structure(compiled, movers), replaced.size, compiled.read(replaced),
        compiled.write(moved.view(np.uint8)), compiled.write(sums),
    )  # fmt: skip
    return moved, sum(sums.tolist())


def nans_and_infinities(codes: Codes) -> tuple[int, int]:
    """How many bf16 codes are NaN, and how many are infinite."""
    special = codes[~is_finite(codes)]
    nans = int(np.count_nonzero(special & _MANTISSA))
    return nans, special.size - nans


def energy_of(source: Codes, target: Codes) -> float:
    """Sum of squared differences over pairs of finite bf16 codes, in float64 and in a fixed order.

    Pair ``i`` is added to sum ``i mod 16``, and the sums to each other at the end.
    """
    sums = np.zeros(_SUMS)
    compiled = library()
    compiled.lib.maskreg_energy(compiled.read(source), compiled.read(target), source.size, compiled.write(sums))
    return sum(sums.tolist())

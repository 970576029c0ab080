"""The work on one span of a pair: read, cast, diff, code, hash. Pure but for reading; runs on any thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import Checkpoint
from maskreg.codec import Codec, grid_at
from maskreg.device import Device, HostDevice
from maskreg.digest import leaf_hashes
from maskreg.flow.extract.comparing import compare, energy_of, nans_and_infinities, nonfinite_in
from maskreg.flow.extract.pairing import Pair, StoredAs
from maskreg.mask import pack, packed_bytes, unpack
from maskreg.parallel import Buffers
from maskreg.rules import Rule
from maskreg.rules.exact import Exact
from maskreg.tensors.blocks import blocks_of
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    from maskreg.digest import LeafHashes

    Codes = npt.NDArray[np.uint16]


class PairSpan(NamedTuple):
    """Elements ``[start, stop)`` of a pair; either side may end before."""

    pair: Pair
    start: int
    stop: int


@dataclass(frozen=True)
class BlockDiff:
    """Everything that an artifact stores of one span, and what the totals need.

    Attributes:
        span: which one.
        source_leaves, target_leaves: hashes of the values that the artifact records; None for an absent side.
        differs: any stored bit differs, or the sides cannot be compared.
        packed: mask bits; None for a pair without a mask.
        nnz: coordinates that moved.
        differing: coordinates whose bits differ.
        energy: sum of squared differences of finite bf16 pairs.
        nonfinite: pairs that are not finite, which the energy leaves out.
        nan, inf: target coordinates that are NaN, or infinite, in bf16.
        delta, reverse: coded values of target and source, if requested.
        source_bytes, target_bytes: raw bytes of tensors stored whole, if requested.
        read_bytes: bytes read from both sides.
    """

    span: PairSpan
    source_leaves: LeafHashes | None
    target_leaves: LeafHashes | None
    differs: bool
    packed: npt.NDArray[np.uint8] | None = None
    nnz: int = 0
    differing: int = 0
    energy: float = 0.0
    nonfinite: int = 0
    nan: int = 0
    inf: int = 0
    delta: bytes | None = None
    reverse: bytes | None = None
    source_bytes: bytes = b""
    target_bytes: bytes = b""
    read_bytes: int = 0


@dataclass(frozen=True)
class Differ:
    """Diffs spans of two checkpoints. Safe to call from many threads, each of which reads into memory of its own.

    Attributes:
        source, target: the checkpoints.
        rule: what counts as moved.
        codec: codes delta and reverse; None for a mask only.
        reversible: make the reverse too.
        device: where codes are compared.
    """

    source: Checkpoint
    target: Checkpoint
    rule: Rule
    codec: Codec | None
    reversible: bool
    device: Device
    _buffers: Buffers = field(default_factory=Buffers, repr=False)

    def __call__(self, span: PairSpan) -> BlockDiff:
        """Diff one span."""
        before, after = self._read("source", span), self._read("target", span)
        read_bytes = sum(side.nbytes for side in (before, after) if side is not None)
        if span.pair.stored_as.masked and before is not None and after is not None:
            return self._masked(span, before, after, read_bytes)
        stored_whole = span.pair.stored_as in (StoredAs.WHOLE, StoredAs.REMOVED)
        return BlockDiff(
            span,
            _leaves(before),
            _leaves(after),
            differs=stored_whole or _bits_differ(before, after),
            source_bytes=_bytes(before) if stored_whole and self.reversible else b"",
            target_bytes=_bytes(after) if stored_whole and self.codec else b"",
            read_bytes=read_bytes,
        )

    def _masked(self, span: PairSpan, before: npt.NDArray[Any], after: npt.NDArray[Any], read_bytes: int) -> BlockDiff:
        pair = span.pair
        source = to_bf16(before, pair.source.dtype if pair.source else "")
        target = to_bf16(after, pair.target.dtype if pair.target else "")
        mask = self._mask_of(source, target)
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
            leaf_hashes(before),
            leaf_hashes(after),
            differs=bool(differing) or not same_dtype,
            packed=mask.packed,
            nnz=mask.nnz,
            differing=differing,
            energy=mask.energy,
            nonfinite=mask.nonfinite,
            nan=nan,
            inf=inf,
            delta=codec.encode(before, after, grid) if codec else None,
            reverse=codec.encode(after, before, grid) if codec and self.reversible else None,
            read_bytes=read_bytes,
        )

    def _mask_of(self, source: Codes, target: Codes) -> _Mask:
        if isinstance(self.rule, Exact) and isinstance(self.device, HostDevice):
            packed = np.empty(packed_bytes(source.size), np.uint8)
            return _Mask(packed, *compare(source, target, packed))
        moved = self._buffers.array("moved", source.size, np.bool_)
        self.device.moved(self.rule, source, target, moved)
        nnz = int(np.count_nonzero(moved))
        packed = pack(moved)
        np.not_equal(source, target, out=moved)
        differing = int(np.count_nonzero(moved))
        return _Mask(packed, nnz, differing, nonfinite_in(source, target), energy_of(source, target))

    def _read(self, side: Literal["source", "target"], span: PairSpan) -> npt.NDArray[Any] | None:
        tensor: TensorInfo | None = getattr(span.pair, side)
        if tensor is None:
            return None
        start, stop = min(span.start, tensor.numel), min(span.stop, tensor.numel)
        checkpoint: Checkpoint = getattr(self, side)
        into = self._buffers.bytes(side, (stop - start) * tensor.item_bytes)
        return checkpoint.read(span.pair.name, start, stop, into)


class _Mask(NamedTuple):
    packed: npt.NDArray[np.uint8]
    nnz: int
    differing: int
    nonfinite: int
    energy: float


def spans_of(pairs: tuple[Pair, ...]) -> Iterator[PairSpan]:
    """Blocks of all pairs, in order; an empty tensor has one empty span, which carries its row."""
    for pair in pairs:
        if not pair.numel:
            yield PairSpan(pair, 0, 0)
        for start, stop in blocks_of(pair.numel):
            yield PairSpan(pair, start, stop)


def _leaves(values: npt.NDArray[Any] | None) -> LeafHashes | None:
    return None if values is None else leaf_hashes(values)


def _bytes(values: npt.NDArray[Any] | None) -> bytes:
    return b"" if values is None else values.tobytes()


def _bits_differ(before: npt.NDArray[Any] | None, after: npt.NDArray[Any] | None) -> bool:
    return before is None or after is None or not np.array_equal(before, after)

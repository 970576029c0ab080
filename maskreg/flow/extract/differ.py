"""The work on one span of a pair: read, cast, diff, code, hash. Pure but for reading; runs on any thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.checkpoint.base import Checkpoint
from maskreg.codec import Codec, grid_at
from maskreg.device import Device
from maskreg.digest import leaf_hashes
from maskreg.flow.extract.pairing import Pair, StoredAs
from maskreg.mask import pack
from maskreg.rules import Rule
from maskreg.tensors.blocks import blocks_of
from maskreg.tensors.cast import is_finite, to_bf16, to_fp32
from maskreg.tensors.info import TensorInfo

if TYPE_CHECKING:
    from maskreg.digest import LeafHashes

    Codes = npt.NDArray[np.uint16]

_TILE = 1 << 16
"""Coordinates whose float64 differences fit a core's cache."""


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
    delta: bytes | None = None
    reverse: bytes | None = None
    source_bytes: bytes = b""
    target_bytes: bytes = b""
    read_bytes: int = 0


@dataclass(frozen=True)
class Differ:
    """Diffs spans of two checkpoints. Safe to call from many threads.

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

    def __call__(self, span: PairSpan) -> BlockDiff:
        """Diff one span."""
        before = _read(self.source, span.pair.source, span)
        after = _read(self.target, span.pair.target, span)
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
        moved = self.device.moved(self.rule, source, target)
        if pair.stored_as is StoredAs.CAST:
            after = target
        if self.codec and pair.stored_as.coded and not self.rule.keeps_target:
            # A rule with a threshold drops small changes: the result keeps the source's bits there.
            after = np.where(moved, after, before)
        same_dtype = before.dtype == after.dtype
        differing = int(np.count_nonzero(before != after if same_dtype else source != target))
        # An empty tensor has no block.
        codec = self.codec if pair.stored_as.coded and before.size else None
        grid = grid_at(pair.source.shape if pair.source else (), span.start)
        return BlockDiff(
            span,
            leaf_hashes(before),
            leaf_hashes(after),
            differs=bool(differing) or not same_dtype,
            packed=pack(moved),
            nnz=int(np.count_nonzero(moved)),
            differing=differing,
            energy=energy_of(source, target),
            delta=codec.encode(before, after, grid) if codec else None,
            reverse=codec.encode(after, before, grid) if codec and self.reversible else None,
            read_bytes=read_bytes,
        )


def spans_of(pairs: tuple[Pair, ...]) -> Iterator[PairSpan]:
    """Blocks of all pairs, in order; an empty tensor has one empty span, which carries its row."""
    for pair in pairs:
        if not pair.numel:
            yield PairSpan(pair, 0, 0)
        for start, stop in blocks_of(pair.numel):
            yield PairSpan(pair, start, stop)


def energy_of(source: Codes, target: Codes) -> float:
    """Sum of squared differences over pairs of finite bf16 numbers, in float64 and in a fixed order.

    Args:
        source: bf16 codes, uint16 ``[n]``.
        target: likewise.
    """
    total = 0.0
    for start in range(0, source.size, _TILE):
        before, after = source[start : start + _TILE], target[start : start + _TILE]
        # All pairs, not only moved ones: the energy is a property of the pair, whatever the rule.
        finite = is_finite(before) & is_finite(after)
        if not finite.all():
            before, after = before[finite], after[finite]
        change = to_fp32(after).astype(np.float64) - to_fp32(before).astype(np.float64)
        total += float(np.square(change, out=change).sum())
    return total


def _read(checkpoint: Checkpoint, tensor: TensorInfo | None, span: PairSpan) -> npt.NDArray[Any] | None:
    if tensor is None:
        return None
    return checkpoint.read(span.pair.name, min(span.start, tensor.numel), min(span.stop, tensor.numel))


def _leaves(values: npt.NDArray[Any] | None) -> LeafHashes | None:
    return None if values is None else leaf_hashes(values)


def _bytes(values: npt.NDArray[Any] | None) -> bytes:
    return b"" if values is None else values.tobytes()


def _bits_differ(before: npt.NDArray[Any] | None, after: npt.NDArray[Any] | None) -> bool:
    return before is None or after is None or not np.array_equal(before, after)

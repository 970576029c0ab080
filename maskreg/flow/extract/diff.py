"""The work on one block of a pair: read, cast, compare, code, hash. Pure but for reading; runs on any thread."""

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
from maskreg.flow.extract.pairing import How, Pair
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


class Run(NamedTuple):
    """Elements ``[start, stop)`` of a pair; either side may end before."""

    pair: Pair
    start: int
    stop: int


@dataclass(frozen=True)
class Compared:
    """What came of one run.

    Attributes:
        run: which one.
        source_leaves, target_leaves: hashes of what the artifact speaks of; None for a side that is absent.
        differs: any stored bit differs, or the sides cannot be compared.
        packed: mask bits; None for a pair that is not compared.
        nnz: coordinates that moved.
        differing: coordinates whose bits differ.
        energy: sum of squared differences of finite bf16 pairs.
        delta, reverse: coded values of target and source, where wanted.
        source_bytes, target_bytes: raw bytes of what is stored whole, where wanted.
        read_bytes: bytes read from both sides.
    """

    run: Run
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
class Comparer:
    """Compares runs of two checkpoints. Safe to call from many threads.

    Attributes:
        source, target: the checkpoints.
        rule: what counts as moved.
        codec: codes delta and reverse; None when only a mask is wanted.
        reversible: reverse is wanted too.
        device: where coordinates are compared.
    """

    source: Checkpoint
    target: Checkpoint
    rule: Rule
    codec: Codec | None
    reversible: bool
    device: Device

    def __call__(self, run: Run) -> Compared:
        """Compare one run."""
        before = _read(self.source, run.pair.source, run)
        after = _read(self.target, run.pair.target, run)
        read_bytes = sum(side.nbytes for side in (before, after) if side is not None)
        if run.pair.how.masked and before is not None and after is not None:
            return self._masked(run, before, after, read_bytes)
        stored_whole = run.pair.how in (How.WHOLE, How.REMOVED)
        return Compared(
            run,
            _leaves(before),
            _leaves(after),
            differs=stored_whole or _bits_differ(before, after),
            source_bytes=_bytes(before) if stored_whole and self.reversible else b"",
            target_bytes=_bytes(after) if stored_whole and self.codec else b"",
            read_bytes=read_bytes,
        )

    def _masked(self, run: Run, before: npt.NDArray[Any], after: npt.NDArray[Any], read_bytes: int) -> Compared:
        pair = run.pair
        source = to_bf16(before, pair.source.dtype if pair.source else "")
        target = to_bf16(after, pair.target.dtype if pair.target else "")
        moved = self.device.moved(self.rule, source, target)
        if pair.how is How.CAST:
            after = target
        if self.codec and pair.how.coded and not self.rule.keeps_target:
            after = np.where(moved, after, before)
        comparable = before.dtype == after.dtype
        differing = int(np.count_nonzero(before != after if comparable else source != target))
        # An empty tensor has no block.
        coded = self.codec if pair.how.coded and before.size else None
        grid = grid_at(pair.source.shape if pair.source else (), run.start)
        return Compared(
            run,
            leaf_hashes(before),
            leaf_hashes(after),
            differs=bool(differing) or not comparable,
            packed=pack(moved),
            nnz=int(np.count_nonzero(moved)),
            differing=differing,
            energy=energy_of(source, target),
            delta=coded.encode(before, after, grid) if coded else None,
            reverse=coded.encode(after, before, grid) if coded and self.reversible else None,
            read_bytes=read_bytes,
        )


def runs_of(pairs: tuple[Pair, ...]) -> Iterator[Run]:
    """Runs of all pairs, in order; an empty tensor has one empty run."""
    for pair in pairs:
        if not pair.numel:
            yield Run(pair, 0, 0)
        for start, stop in blocks_of(pair.numel):
            yield Run(pair, start, stop)


def energy_of(source: Codes, target: Codes) -> float:
    """Sum of squared differences over pairs of finite bf16 numbers, in float64 and in a fixed order.

    Args:
        source: bf16 codes, uint16 ``[n]``.
        target: likewise.
    """
    total = 0.0
    for start in range(0, source.size, _TILE):
        one, other = source[start : start + _TILE], target[start : start + _TILE]
        # Not only where a rule says so: the energy is a property of the pair, whatever the rule.
        finite = is_finite(one) & is_finite(other)
        if not finite.all():
            one, other = one[finite], other[finite]
        change = to_fp32(other).astype(np.float64) - to_fp32(one).astype(np.float64)
        total += float(np.square(change, out=change).sum())
    return total


def _read(checkpoint: Checkpoint, tensor: TensorInfo | None, run: Run) -> npt.NDArray[Any] | None:
    if tensor is None:
        return None
    return checkpoint.read(run.pair.name, min(run.start, tensor.numel), min(run.stop, tensor.numel))


def _leaves(values: npt.NDArray[Any] | None) -> LeafHashes | None:
    return None if values is None else leaf_hashes(values)


def _bytes(values: npt.NDArray[Any] | None) -> bytes:
    return b"" if values is None else values.tobytes()


def _bits_differ(before: npt.NDArray[Any] | None, after: npt.NDArray[Any] | None) -> bool:
    return before is None or after is None or not np.array_equal(before, after)

"""Both sides of an artifact, tensor by tensor, each checked against the artifact's leaves before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from maskreg.artifact.manifest import Tensor
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.base import Checkpoint
from maskreg.device import Device
from maskreg.errors import PartAbsentError, WrongCheckpointError
from maskreg.rules import parse_rule
from maskreg.tensors.blocks import blocks_of, rechunked
from maskreg.tensors.cast import to_bf16
from maskreg.tensors.dtypes import FLOAT, WIDE
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.leaves import check_after, check_before, leaf_count, leaves_between
from maskreg.update.direction import Change, Direction
from maskreg.update.patch import patch_block

if TYPE_CHECKING:
    from maskreg.digest import LeafHashes

Bits = npt.NDArray[Any]


@dataclass(frozen=True)
class Pair:
    """One tensor on both sides.

    Attributes:
        row: its row of the tensor table.
        before: the source's bits, unsigned integers in the tensor's shape.
        before_dtype: safetensors code of ``before``.
        after: the target's bits likewise.
        after_dtype: safetensors code of ``after``; wider than what the artifact holds for a master of full precision.
    """

    row: Tensor
    before: Bits
    before_dtype: str
    after: Bits
    after_dtype: str


class Sides:
    """Reads the compared tensors of an artifact from its source, and from its target or the delta.

    Attributes:
        artifact: the artifact.
        rows: the tensors that both sides have and that can be compared, in the order of the tensor table.
        left_out: names of the others.
    """

    def __init__(self, artifact: Artifact, source: Checkpoint, target: Checkpoint | None, device: Device) -> None:
        """Check that source and target have these tensors, in these shapes and dtypes.

        Args:
            artifact: the artifact.
            source: the checkpoint that it was made from.
            target: the other side; made from the source and the delta when None, as ``apply`` does.
            device: where blocks are decoded.

        Raises:
            WrongCheckpointError: a tensor is missing or of another form.
            PartAbsentError: there is no target, and no delta here to make it from.
        """
        self.artifact = artifact
        self._source = source
        self._target = target
        self._device = device
        self._direction = None if target is not None else _direction(artifact)
        self._rule = parse_rule(artifact.manifest.rule)
        self.rows = tuple(row for row in artifact.tensors if row.numel)
        self.left_out = tuple(row.name for row in artifact.tensors if not row.numel)
        for row in self.rows:
            _check_form(source, row.name, row.source_dtype, row.source_shape, masters=False)
            if target is not None:
                _check_form(target, row.name, row.target_dtype, row.target_shape, masters=True)

    def read(self, row: Tensor) -> Pair:
        """Both sides of a tensor, all of it in memory.

        Raises:
            WrongCheckpointError: a side is not the checkpoint that the artifact was made from.
            CorruptError: the delta does not lead to what the artifact recorded.
        """
        source_leaves, target_leaves = self.artifact.leaves(row)
        before = np.concatenate([*self._before(row, source_leaves)])
        dtype = row.target_dtype
        if self._target is not None:
            dtype = self._target.tensors[row.name].dtype
            after = np.concatenate([*self._given(self._target, row, before, target_leaves)])
        else:
            after = np.concatenate([*self._made(row, before, source_leaves, target_leaves)])
        shape = row.source_shape or ()
        return Pair(row, before.reshape(shape), row.source_dtype, after.reshape(shape), dtype)

    def _before(self, row: Tensor, leaves: LeafHashes) -> Iterator[Bits]:
        for start, stop in blocks_of(row.numel):
            values = self._source.read(row.name, start, stop)
            check_before(row.name, start, values, leaves_between(leaves, start, stop))
            yield values

    def _given(self, target: Checkpoint, row: Tensor, before: Bits, leaves: LeafHashes) -> Iterator[Bits]:
        dtype = target.tensors[row.name].dtype
        for start, stop in blocks_of(row.numel):
            values = held = target.read(row.name, start, stop)
            if dtype != row.target_dtype:
                held = to_bf16(values, dtype)
            if self.artifact.manifest.kind == "delta" and not self._rule.keeps_target and row.blocks:
                # Such a delta speaks of the source with the masked coordinates replaced.
                here = before[start:stop]
                moved = self._rule.moved(to_bf16(here, row.source_dtype), to_bf16(held, row.target_dtype))
                held = np.where(moved, held, here)
            check_before(row.name, start, held, leaves_between(leaves, start, stop))
            yield values

    def _made(self, row: Tensor, before: Bits, source: LeafHashes, target: LeafHashes) -> Iterator[Bits]:
        direction = self._direction
        assert direction is not None
        step = direction.steps[row.name]
        if step.change is Change.REPLACE:
            stored = TensorInfo(row.name, row.target_dtype, row.target_shape or ())
            start = 0
            for values in rechunked(self.artifact.whole(row), stored):
                check_after(row.name, start, values, leaves_between(target, start, start + values.size))
                start += values.size
                yield values
            return
        codec = self.artifact.codec("delta")
        for number, (start, stop) in enumerate(blocks_of(row.numel)):
            here = before[start:stop]
            leaves = (leaves_between(side[: leaf_count(row.numel)], start, stop) for side in (source, target))
            expected, result = leaves
            if step.change is Change.KEEP:
                check_after(row.name, start, here, result)
                yield here
            else:
                block = self.artifact.block("delta", row.first_block + number)
                decode = partial(self._device.decode, codec, block=block)
                yield patch_block(row.name, start, here, decode, before=expected, after=result)


def _direction(artifact: Artifact) -> Direction:
    if artifact.manifest.kind != "delta":
        raise PartAbsentError(
            f"artifact {artifact.digest.short} is a {artifact.manifest.kind}: it says which coordinates move, not to "
            "what, so the target has to be given",
            hint="add --target CHECKPOINT",
        )
    return Direction(artifact, revert=False)


def _check_form(checkpoint: Checkpoint, name: str, dtype: str, shape: tuple[int, ...] | None, *, masters: bool) -> None:
    found = checkpoint.tensors.get(name)
    if found is None:
        raise WrongCheckpointError(name, "missing in this checkpoint")
    wider = masters and dtype == "BF16" and found.dtype in WIDE
    if found.shape != shape or (found.dtype != dtype and not wider) or found.dtype not in FLOAT:
        raise WrongCheckpointError(
            name, f"{found.dtype} {list(found.shape)} here, {dtype} {list(shape or ())} expected"
        )

"""An artifact seen from the checkpoint at hand: what each tensor is before and after, forwards or back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from maskreg.artifact.manifest import Tensor
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint.base import Checkpoint
from maskreg.errors import FormatError, PartAbsentError, WrongCheckpointError
from maskreg.tensors.blocks import blocks_of
from maskreg.tensors.dtypes import ITEM_BYTES
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.leaves import differing_leaf, leaf_count, leaves_between

if TYPE_CHECKING:
    from maskreg.digest import LeafHashes


class Change(Enum):
    """What applying does to a tensor."""

    KEEP = "bytes stay"
    DECODE = "coded blocks turn it into the result"
    REPLACE = "the result's bytes are in the artifact"
    ADD = "the checkpoint at hand lacks it; the result's bytes are in the artifact"
    REMOVE = "the result lacks it"


@dataclass(frozen=True)
class Step:
    """One tensor, by one of its names.

    Attributes:
        name: in the checkpoint at hand and in the result.
        row: its row of the tensor table.
        change: what happens to it.
        before: as it must be at hand; None when it is added.
        after: as it will be; None when it is removed.
    """

    name: str
    row: Tensor
    change: Change
    before: TensorInfo | None
    after: TensorInfo | None


class Direction:
    """An artifact's steps from source to target, or back.

    Attributes:
        artifact: the artifact.
        revert: from target to source.
        part: ``delta`` or ``reverse``.
        steps: by tensor name, tied names included, in the order of the tensor table.
    """

    def __init__(self, artifact: Artifact, *, revert: bool) -> None:
        """Work out the steps.

        Raises:
            PartAbsentError: the values for this direction are not in the artifact, or not here.
            FormatError: the tensor table contradicts itself.
        """
        self.artifact = artifact
        self.revert = revert
        self.part = "reverse" if revert else "delta"
        if artifact.manifest.kind != "delta":
            raise PartAbsentError(
                f"artifact {artifact.digest.short} is a {artifact.manifest.kind}: it says which coordinates move, "
                "not to what, so there is nothing to apply",
                hint="" if artifact.manifest.kind == "baseline" else "extract without --mask-only keeps the values",
            )
        artifact.require(self.part)
        self.steps: Mapping[str, Step] = {
            name: self._step(name, row) for row in artifact.tensors for name in (row.name, *row.aliases)
        }

    def leaves(self, step: Step) -> tuple[LeafHashes, LeafHashes]:
        """Leaf hashes before and after, each uint8 ``[k, 16]``, k being the leaves of that side."""
        sides = self.artifact.leaves(step.row)
        before, after = reversed(sides) if self.revert else sides
        return before[: _leaves_of(step.before)], after[: _leaves_of(step.after)]

    def check_shape(self, checkpoint: Checkpoint) -> None:
        """Check names, dtypes and shapes of all tensors, without reading data.

        Raises:
            WrongCheckpointError: the first tensor that is missing, surplus, or of another form.
        """
        for step in self.steps.values():
            if step.before is None:
                continue
            found = checkpoint.tensors.get(step.name)
            if found is None:
                raise WrongCheckpointError(step.name, "missing in this checkpoint", hint=self.wanted)
            if found != step.before:
                raise WrongCheckpointError(
                    step.name, f"{_form(found)} here, {_form(step.before)} expected", hint=self.wanted
                )
        for name in checkpoint.tensors:
            if name not in self.steps or self.steps[name].before is None:
                raise WrongCheckpointError(name, "surplus in this checkpoint", hint=self.wanted)

    def is_result(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint already is what this direction leads to; reads it, up to the first difference."""
        results = {s.name: s for s in self.steps.values() if s.after is not None}
        if {n: s.after for n, s in results.items()} != dict(checkpoint.tensors):
            return False
        return all(self._holds_result(checkpoint, step) for step in results.values())

    @property
    def wanted(self) -> str:
        """A hint that says which checkpoint is wanted."""
        side = self.artifact.manifest.target if self.revert else self.artifact.manifest.source
        known = f" {side.hub}" if side.hub else f" with root {side.root[:19]}"
        return f"give the {'target' if self.revert else 'source'} that the artifact was made from:{known}"

    def _holds_result(self, checkpoint: Checkpoint, step: Step) -> bool:
        _, after = self.leaves(step)
        numel = step.after.numel if step.after else 0
        return all(
            differing_leaf(checkpoint.read(step.name, start, stop), leaves_between(after, start, stop)) is None
            for start, stop in blocks_of(numel)
        )

    def _step(self, name: str, row: Tensor) -> Step:
        source = _info(name, row.source_dtype, row.source_shape)
        target = _info(name, row.target_dtype, row.target_shape)
        before, after = (target, source) if self.revert else (source, target)
        return Step(name, row, self._change(row, before, after), before, after)

    def _change(self, row: Tensor, before: TensorInfo | None, after: TensorInfo | None) -> Change:
        stored = row.reverse_whole_bytes if self.revert else row.whole_bytes
        if after is None:
            return Change.REMOVE
        if before is None or before != after or stored:
            if stored != after.nbytes:
                raise FormatError(f"tensors.json: {row.name}: {stored} bytes of {after.nbytes} are stored")
            return Change.ADD if before is None else Change.REPLACE
        if row.source_fingerprint == row.target_fingerprint:
            return Change.KEEP
        if not row.blocks or after.item_bytes != 2:
            raise FormatError(f"tensors.json: {row.name}: it changes, but its values are not stored")
        return Change.DECODE


def _info(name: str, dtype: str, shape: tuple[int, ...] | None) -> TensorInfo | None:
    if shape is None:
        return None
    if dtype not in ITEM_BYTES:
        raise FormatError(f"tensors.json: {name}: dtype {dtype!r} is not known")
    return TensorInfo(name, dtype, shape)


def _leaves_of(tensor: TensorInfo | None) -> int:
    return leaf_count(tensor.numel) if tensor else 0


def _form(tensor: TensorInfo) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"

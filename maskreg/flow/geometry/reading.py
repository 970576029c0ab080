"""Both sides of an artifact's update, tensor by tensor, each leaf checked before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.artifact.scope import parts_of, row_of
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.ahead import blocks_ahead
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.roles import ALL, Part, Selection
from maskreg.device import Device
from maskreg.errors import PartAbsentError, WrongCheckpointError, WrongTargetError
from maskreg.parallel import Buffers, worker_count
from maskreg.tensors.cast import to_bf16, to_float
from maskreg.tensors.info import ITEM_BYTES, WIDE, TensorInfo
from maskreg.tensors.leaves import check_before, leaves_between
from maskreg.tensors.rules import parse_rule
from maskreg.update.delta import Delta
from maskreg.update.verified import RecordedSide, VerifiedSource, require_tensors

Bits = npt.NDArray[Any]


@dataclass(frozen=True)
class TensorUpdate:
    """One tensor before and after an update: bits as unsigned integers in the tensor's shape.

    The dtype after it is wider than recorded for a full-precision master.
    """

    row: Tensor
    before: Bits
    before_dtype: str
    after: Bits
    after_dtype: str

    def difference(self, start: int, stop: int) -> npt.NDArray[np.float64]:
        """The update of elements ``[start, stop)``."""
        sides = ((self.before, self.before_dtype), (self.after, self.after_dtype))
        before, after = (to_float(bits.reshape(-1)[start:stop], dtype) for bits, dtype in sides)
        return np.asarray(after - before)


class UpdateReader:
    """Reads the compared tensors of an artifact from its source, and from its target or the delta.

    Attributes:
        by_name: the selected tensors with coordinates to compare, in the order of the tensor table. Of a part of a
            fused tensor, the name, shape and size that it has where it is stored alone.
        left_out: names of the tensors without coordinates to compare.
    """

    def __init__(
        self,
        artifact: Artifact,
        source: Checkpoint,
        target: Checkpoint | None,
        device: Device,
        selection: Selection = ALL,
    ) -> None:
        """Verify the source, and the form of the target, in which fp32 or fp64 masters can stand for bf16.

        Without a target, it is made from source and delta, as ``apply`` does.
        """
        self._artifact = artifact
        self._target = target
        self._rule = parse_rule(artifact.manifest.rule)
        self._recorded = RecordedSide(artifact, "target")
        compared = {row.name: row for row in artifact.tensors if row.numel}
        self._parts = {part.name: part for part in parts_of(compared.values(), selection)}
        self._wholes = {part.tensor: compared[part.tensor] for part in self._parts.values()}
        self.by_name = {name: row_of(part, self._wholes[part.tensor]) for name, part in self._parts.items()}
        self._buffers = Buffers()
        self.left_out = tuple(row.name for row in artifact.tensors if not row.numel)
        if target is None:
            self._delta = _delta(artifact)
            self._decode = partial(device.decode, self._delta.codec)
        else:
            with self._blaming(target):
                require_tensors(target, self._recorded.tensors, hint=self._recorded.hint, fits=_fits)
        self._source = VerifiedSource(artifact, source, jobs=worker_count(None))

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """The selected tensors, in order."""
        return tuple(self.by_name.values())

    def read(self, row: Tensor) -> TensorUpdate:
        """Both sides of a tensor, all of it in memory."""
        part = self._parts[row.name]
        own, row = row, self._wholes[part.tensor]
        blocks = blocks_ahead(row.name, row.numel, self._source.checkpoint)
        before = np.concatenate([self._source.read(row.name, *span) for span in blocks])
        dtype = row.target_dtype
        if self._target is not None:
            dtype = self._target.tensors[row.name].dtype
            after = np.concatenate([*self._from_target(self._target, row, before)])
        else:
            after = np.empty(row.numel, f"<u{ITEM_BYTES[dtype]}")
            for span in self._delta[row.name].spans():
                run = slice(span.start, span.stop)
                after[run] = span.result(before[run], self._decode, self._buffers)
        shape = row.source_shape or ()
        before, after = (_rows(side.reshape(shape), part) for side in (before, after))
        return TensorUpdate(own, before, row.source_dtype, after, dtype)

    @contextmanager
    def _blaming(self, target: Checkpoint) -> Iterator[None]:
        """Blame the target: the error of a wrong source would make its caller look for another one."""
        try:
            yield
        except WrongCheckpointError as error:
            raise WrongTargetError(f"target: {target.path}: {error.message}", hint=self._recorded.hint) from error

    def _from_target(self, target: Checkpoint, row: Tensor, before: Bits) -> Iterator[Bits]:
        dtype = target.tensors[row.name].dtype
        leaves = self._recorded.leaves(row.name)
        for start, stop in blocks_ahead(row.name, row.numel, target):
            values = recorded = target.read(row.name, start, stop)
            if dtype != row.target_dtype:
                recorded = to_bf16(values, dtype)
            if self._artifact.manifest.kind == "delta" and not self._rule.keeps_target and not row.whole_bytes:
                # Such a delta records the source with the masked coordinates replaced.
                kept = before[start:stop]
                moved = self._rule.moved(to_bf16(kept, row.source_dtype), to_bf16(recorded, row.target_dtype))
                recorded = np.where(moved, recorded, kept)
            with self._blaming(target):
                check_before(row.name, start, recorded, leaves_between(leaves, start, stop))
            yield values


def _rows(values: Bits, part: Part) -> Bits:
    # A copy, so that a part does not keep the whole tensor in memory.
    return values if part.name == part.tensor else values[part.start : part.stop].copy()


def _delta(artifact: Artifact) -> Delta:
    if artifact.manifest.kind != "delta":
        raise PartAbsentError(
            f"artifact {artifact.digest.short} is a {artifact.manifest.kind}: it holds which coordinates move, but no "
            "values to make the target from",
            hint="name its target",
            options={"target": None},
        )
    return Delta(artifact)


def _fits(present: TensorInfo, recorded: TensorInfo) -> bool:
    master = recorded.dtype == "BF16" and present.dtype in WIDE
    return present.shape == recorded.shape and (present.dtype == recorded.dtype or master)

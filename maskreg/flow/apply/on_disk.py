"""Applying on disk: write the artifact's other side beside its source, checked before, during and after."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from maskreg.artifact.reader import Artifact
from maskreg.bucket import Location
from maskreg.checkpoint import named_like
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.plan import OutputPlan, plan_like
from maskreg.checkpoint.writer import CheckpointWriter
from maskreg.checkpoint.writing import fill, write_checkpoint
from maskreg.codec import Codec
from maskreg.device import Device, open_device
from maskreg.errors import AlreadyAppliedError, WrongCheckpointError
from maskreg.parallel import Buffers, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.result import Result
from maskreg.tensors.info import WIDE, blocks_of, numel_of
from maskreg.update.delta import Change, Delta, SpanDelta
from maskreg.update.small_files import SmallFiles, small_files_of
from maskreg.update.verified import VerifiedSource


@dataclass(frozen=True)
class Written(Result):
    """A checkpoint that was written.

    Attributes:
        out: the new checkpoint.
        tensors: how many it has.
        bytes: size of its weight files.
        skipped_files: weight files and folders beside the source that were not copied.
        kept_files: files that were in the output's folder, and that ``force`` left there.
    """

    out: Path
    tensors: int
    bytes: int
    skipped_files: tuple[str, ...]
    kept_files: tuple[str, ...]


def written_by(writer: CheckpointWriter, plan: OutputPlan, source: Checkpoint) -> Written:
    """What a writer has written by a plan, beside what lies at the source."""
    skipped = (*source.other_weights(), *writer.skipped_files)
    return Written(writer.out, sum(1 for _ in plan.tensors), plan.total_bytes, skipped, writer.kept_files)


@dataclass(frozen=True)
class ApplyResult(Written):
    """A checkpoint that applying has written; see :class:`Written`.

    Attributes:
        code_files: small files of the output that can run code, from the artifact or copied from the source.
        code_left_out: small files of the artifact that can run code, and were not written.
        notes: warnings and remarks, one sentence each.
    """

    code_files: tuple[str, ...]
    code_left_out: tuple[str, ...]
    notes: tuple[str, ...]


def apply(
    artifact: Artifact,
    source: Checkpoint,
    out: str | Path,
    *,
    revert: bool = False,
    device: str | Device = "cpu",
    force: bool = False,
    with_code: bool = False,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> ApplyResult:
    """Apply an artifact to its source checkpoint and write the target; or back, with ``revert``.

    The promise, for a tensor of three blocks on two threads::

        before:   names, dtypes, shapes; first and last leaf of every tensor      nothing is written yet
        block 0:  read -> leaves right? -> decode -> leaves right? -> write       check before, decode, check after
        block 1:  read -> leaves right? -> decode -> leaves right? -> write       on another thread, at its place
        block 2:  ...
        at the end: hash the artifact's remaining objects, sync, rename           the output appears, whole

    A failed check anywhere removes the working folder and raises. A context with one wrong bit would decode to noise,
    so the source is checked before each block is decoded, and not only the result.

    ``force`` replaces files of an earlier output that are written again; others in its folder stay. ``with_code``
    writes small files of the artifact that can run code too. Progress is in bytes of the result.
    """
    threads = worker_count(jobs)
    decoder = open_device(device)
    delta = Delta(artifact, revert=revert)
    source = named_like(source, delta.before.tensors)
    try:
        verified = VerifiedSource(artifact, source, side=delta.before.name, jobs=threads)
        files = small_files_of(delta, source, with_code=with_code)
        plan = _plan(delta, source, files)
        progress.start("apply", plan.total_bytes)
        with write_checkpoint(Path(out), plan, force=force) as writer:
            patcher = _SpanPatcher(verified, decoder, delta.codec)
            tasks = verified.ahead(_tasks(delta, plan), patcher.reads)
            with closing(fill(writer, patcher, tasks, jobs=threads)) as sizes:
                for size in sizes:
                    progress.advance(size)
            artifact.verify_rest(jobs=threads)
    except WrongCheckpointError as error:
        if delta.after.matches(source):
            raise _already_done(delta, error.tensor, source.path) from error
        raise
    return ApplyResult(
        **vars(written_by(writer, plan, source)),
        code_files=tuple(sorted({*files.code, *files.own_code} - set(writer.skipped_files))),
        code_left_out=files.left_out,
        notes=(*(f"source: {note}" for note in source.remarks), *_notes(delta), *files.notes),
    )


class _Task(NamedTuple):
    """Elements of a tensor at hand, or of the result, whose data begins at an offset of the output's.

    ``span`` is what becomes of them; None for elements that the result does not need, which are only checked.
    """

    name: str
    start: int
    stop: int
    offset: int = 0
    span: SpanDelta | None = None


def _tasks(delta: Delta, plan: OutputPlan) -> Iterator[_Task]:
    """Spans of every tensor in the order of the output, then of removed tensors."""
    removed = [tensor.name for tensor in delta.values() if tensor.after is None]
    offset = 0
    for name in [*(info.name for info in plan.tensors), *removed]:
        tensor = delta[name]
        if tensor.change in (Change.REPLACE, Change.REMOVE) and tensor.before is not None:
            yield from (_Task(name, start, stop) for start, stop in blocks_of(tensor.before.numel))
        for span in tensor.spans():
            yield _Task(name, span.start, span.stop, offset, span)
            offset += numel_of(span) * span.item_bytes


class _SpanPatcher:
    """Turns a span of the source into one of the output, on any thread."""

    def __init__(self, source: VerifiedSource, device: Device, codec: Codec) -> None:
        self._source = source
        self._device = device
        self._codec = codec
        self._buffers = Buffers()

    def __call__(self, task: _Task, phase: int) -> npt.NDArray[Any] | None:
        span, at_hand = task.span, None
        if self.reads(task) is not None:
            size = numel_of(task) * self._source.recorded.tensors[task.name].item_bytes
            # Memory that is written begins where the disk can fetch it from.
            is_result = span is not None and span.coded is None
            into = self._buffers.bytes("source", size, phase if is_result else 0)
            at_hand = self._source.read(task.name, task.start, task.stop, into)
        if span is None:
            return None
        return span.result(at_hand, partial(self._device.decode, self._codec), self._buffers, phase)

    def reads(self, task: _Task) -> tuple[str, int, int] | None:
        """What is read of the source for a task."""
        return (task.name, task.start, task.stop) if task.span is None or task.span.stored is None else None


def _plan(delta: Delta, checkpoint: Checkpoint, files: SmallFiles) -> OutputPlan:
    tensors = delta.values()
    return plan_like(
        checkpoint,
        replace={t.name: t.after for t in tensors if t.before and t.after and t.before != t.after},
        remove=[t.name for t in tensors if t.after is None],
        add=[t.after for t in tensors if t.before is None and t.after],
        files=files.written,
        remove_files=files.removed,
    )


def _already_done(delta: Delta, tensor: str, path: Location) -> AlreadyAppliedError:
    end = "source" if delta.revert else "target"
    fault, hint = f"this checkpoint is already the {end}", "use this checkpoint as it is"
    if not delta.revert and "reverse" in delta.artifact.manifest.parts:
        facts = {"ref": delta.artifact.name, "revertible": shlex.quote(str(path))}
        return AlreadyAppliedError(tensor, fault, hint=f"{hint}, or go back to the source", **facts)
    return AlreadyAppliedError(tensor, fault, hint=hint)


def _notes(delta: Delta) -> Iterator[str]:
    manifest = delta.artifact.manifest
    if not delta.revert and not manifest.exact:
        yield f"rule {manifest.rule} drops small changes: the result is not the target"
    if not delta.revert and manifest.target.cast:
        yield f"target: bf16 cast of an {' and '.join(sorted(WIDE & manifest.target.dtypes.keys()))} checkpoint"

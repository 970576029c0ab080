"""Applying: patch a checkpoint on disk into the artifact's other side, checked before, during and after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from maskreg.artifact.layout import FILES
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import Checkpoint, OutputPlan, plan_like, write_checkpoint
from maskreg.device import Device, open_device
from maskreg.digest import LEAF_NUMEL
from maskreg.errors import CorruptError, WrongCheckpointError
from maskreg.parallel import ordered, worker_count
from maskreg.progress import SILENT, Progress
from maskreg.tensors.blocks import blocks_of, rechunked
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.leaves import check_after, check_before, leaves_between
from maskreg.update.direction import Change, Direction, Step
from maskreg.update.patch import patch_block

if TYPE_CHECKING:
    from maskreg.digest import LeafHashes


@dataclass(frozen=True)
class Applied:
    """What applying made.

    Attributes:
        out: the new checkpoint.
        tensors: how many it has.
        bytes: size of its files.
        skipped_files: weight files and folders beside the source that were not copied.
        notes: what people should know about it, one sentence each.
    """

    out: Path
    tensors: int
    bytes: int
    skipped_files: tuple[str, ...]
    notes: tuple[str, ...]


def apply(
    artifact: Artifact,
    source: Checkpoint,
    out: str | Path,
    *,
    revert: bool = False,
    device: str | Device = "cpu",
    force: bool = False,
    progress: Progress = SILENT,
    jobs: int | None = None,
) -> Applied:
    """Patch a checkpoint: the source into the target, or back.

    Names, dtypes, shapes and the first and last leaf of every tensor are checked before anything is written;
    every leaf at hand before its block is decoded, and every leaf of the result after. The output appears at the
    end, whole, or not at all.

    Args:
        artifact: with a delta; with a reverse part to go back.
        source: the checkpoint at hand; with ``revert`` the artifact's target.
        out: where the result goes.
        revert: turn the target into the source.
        device: ``cpu``, ``cuda`` or ``cuda:N``, where blocks are decoded.
        force: replace an earlier output.
        progress: told about bytes of the result.
        jobs: threads; by default what the machine has.

    Raises:
        WrongCheckpointError: ``source`` is not the checkpoint that the artifact is applied to.
        PartAbsentError: the artifact has no values for this direction, or they are not here.
        DataError: the artifact is damaged.
        CannotCreateError: ``out`` exists, or cannot be written.
        ConfigError: there is no such device.
    """
    threads = worker_count(jobs)
    where = open_device(device) if isinstance(device, str) else device
    direction = Direction(artifact, revert=revert)
    try:
        direction.check_shape(source)
        _check_ends(direction, source, threads)
        plan = _plan(direction, source)
        work = _Patcher(direction, source, where)
        progress.start("apply", plan.total_bytes)
        with write_checkpoint(Path(out), plan, force=force) as writer:
            with closing(ordered(work, work.pieces(plan), jobs=threads)) as results:
                for values in results:
                    writer.write(values.data)
                    progress.advance(values.nbytes)
            artifact.verify_rest(jobs=threads)
    except WrongCheckpointError as error:
        if direction.is_result(source):
            raise _already_done(direction, error.tensor) from error
        raise
    return Applied(
        out=writer.out,
        tensors=sum(1 for _ in plan.tensors),
        bytes=plan.total_bytes,
        skipped_files=(*source.other_weights(), *writer.skipped_files),
        notes=_notes(direction),
    )


@dataclass(frozen=True)
class _Piece:
    """A run of one tensor: what it is, what it must be at hand, and what the result must be.

    Attributes:
        step: the tensor.
        start, stop: elements of the run.
        before: leaf hashes at hand; None when nothing at hand belongs to it.
        after: leaf hashes of the result; None for a run that is only checked.
        block: the coded block, where there is one.
        stored: the result's elements, where the artifact holds them as they are.
    """

    step: Step
    start: int
    stop: int
    before: LeafHashes | None
    after: LeafHashes | None
    block: bytes | None = None
    stored: npt.NDArray[Any] | None = None


class _Patcher:
    """Makes pieces in the order of the output (in one thread), and works on them (in many)."""

    def __init__(self, direction: Direction, checkpoint: Checkpoint, device: Device) -> None:
        self._direction = direction
        self._artifact = direction.artifact
        self._checkpoint = checkpoint
        self._device = device
        self._codec = direction.artifact.codec(direction.part)

    def pieces(self, plan: OutputPlan) -> Iterator[_Piece]:
        """Pieces of every tensor of the output, then of those that are only checked because they go."""
        steps = self._direction.steps
        gone = [step for step in steps.values() if step.after is None]
        for step in [*(steps[info.name] for info in plan.tensors), *gone]:
            before, after = self._direction.leaves(step)
            if step.change in (Change.KEEP, Change.DECODE):
                yield from self._made_from_what_is_at_hand(step, before, after)
                continue
            yield from _runs(step, step.before, before=before, after=None)
            if step.after is not None:
                yield from self._stored(step, step.after, after)

    def __call__(self, piece: _Piece) -> npt.NDArray[np.uint8]:
        """The bytes of the output that a piece stands for, checked; none for one that is only checked."""
        name, start = piece.step.name, piece.start
        if piece.stored is not None and piece.after is not None:
            check_after(name, start, piece.stored, piece.after)
            return piece.stored.view(np.uint8)
        at_hand = self._checkpoint.read(name, start, piece.stop)
        if piece.before is not None and piece.after is not None and piece.block is not None:
            decode = partial(self._device.decode, self._codec, block=piece.block)
            return patch_block(name, start, at_hand, decode, before=piece.before, after=piece.after).view(np.uint8)
        if piece.before is not None:
            check_before(name, start, at_hand, piece.before)
        return at_hand.view(np.uint8) if piece.after is not None else np.empty(0, np.uint8)

    def _made_from_what_is_at_hand(self, step: Step, before: LeafHashes, after: LeafHashes) -> Iterator[_Piece]:
        if step.change is Change.KEEP and not np.array_equal(before, after):
            raise CorruptError(f"tensor {step.name}", "it is said to stay, yet its leaves differ")
        for number, piece in enumerate(_runs(step, step.after, before=before, after=after)):
            if step.change is Change.KEEP:
                yield piece
            else:
                block = self._artifact.block(self._direction.part, step.row.first_block + number)
                yield replace(piece, block=block)

    def _stored(self, step: Step, tensor: TensorInfo, after: LeafHashes) -> Iterator[_Piece]:
        start = 0
        for values in rechunked(self._artifact.whole(step.row, self._direction.part), tensor):
            stop = start + values.size
            yield _Piece(step, start, stop, before=None, after=leaves_between(after, start, stop), stored=values)
            start = stop


def _runs(step: Step, tensor: TensorInfo | None, *, before: LeafHashes, after: LeafHashes | None) -> Iterator[_Piece]:
    for start, stop in blocks_of(tensor.numel if tensor else 0):
        result = None if after is None else leaves_between(after, start, stop)
        yield _Piece(step, start, stop, before=leaves_between(before, start, stop), after=result)


def _check_ends(direction: Direction, checkpoint: Checkpoint, jobs: int) -> None:
    """Check the first and last leaf of every tensor at hand: most wrong checkpoints show here, at once."""

    def ends() -> Iterator[tuple[str, int, int, LeafHashes]]:
        for step in direction.steps.values():
            numel = step.before.numel if step.before else 0
            if numel:
                before, _ = direction.leaves(step)
                for start in sorted({0, (numel - 1) // LEAF_NUMEL * LEAF_NUMEL}):
                    stop = min(start + LEAF_NUMEL, numel)
                    yield step.name, start, stop, leaves_between(before, start, stop)

    def check(end: tuple[str, int, int, LeafHashes]) -> None:
        name, start, stop, leaves = end
        check_before(name, start, checkpoint.read(name, start, stop), leaves)

    with closing(ordered(check, ends(), jobs=jobs)) as results:
        for _ in results:
            pass


def _plan(direction: Direction, checkpoint: Checkpoint) -> OutputPlan:
    steps = direction.steps.values()
    # Going back, small files that the target had and the source lacked go again.
    added = {o.key.removeprefix(FILES) for o in direction.artifact.manifest.objects if o.key.startswith(FILES)}
    return plan_like(
        checkpoint,
        replace={s.name: s.after for s in steps if s.before and s.after and s.before != s.after},
        remove=[s.name for s in steps if s.after is None],
        add=[s.after for s in steps if s.before is None and s.after],
        files=direction.artifact.files(direction.part),
        remove_files=added if direction.revert else (),
    )


def _already_done(direction: Direction, tensor: str) -> WrongCheckpointError:
    if direction.revert:
        return WrongCheckpointError(tensor, "this checkpoint is already the source", hint="nothing is left to do")
    back = "reverse" in direction.artifact.manifest.parts
    return WrongCheckpointError(
        tensor,
        "this checkpoint is already the target",
        hint="nothing is left to do; use --revert to go back" if back else "nothing is left to do",
    )


def _notes(direction: Direction) -> tuple[str, ...]:
    manifest = direction.artifact.manifest
    notes: list[str] = []
    if not direction.revert:
        if not manifest.exact:
            notes.append(f"rule {manifest.rule} drops small changes: the result is not the target")
        if manifest.target.cast:
            wide = " and ".join(sorted(d for d in manifest.target.dtypes if d in ("F32", "F64")))
            notes.append(f"target: bf16 cast of an {wide} checkpoint")
    return tuple(notes)

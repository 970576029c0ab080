"""Planning and writing a checkpoint modeled on another one, whatever their formats."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from maskreg.bucket import Location
from maskreg.checkpoint.base import Changes, Checkpoint, CheckpointWriter, OutputPlan
from maskreg.checkpoint.companions import check_small_file
from maskreg.checkpoint.formats import FORMATS
from maskreg.checkpoint.safetensors.plan import plan_output
from maskreg.errors import WrongCheckpointError
from maskreg.limits import LIMITS, Limits
from maskreg.space import filling
from maskreg.tensors.info import TensorInfo


def plan_like(
    source: Checkpoint,
    *,
    replace: Mapping[str, TensorInfo] | None = None,
    remove: Collection[str] = (),
    add: Sequence[TensorInfo] = (),
    files: Mapping[str, bytes] | None = None,
    remove_files: Collection[str] = (),
    limits: Limits = LIMITS,
) -> OutputPlan:
    """Plan a checkpoint with the source's format, files, tensor order and metadata.

    A source of a format that cannot be written gives a plan for safetensors.

    Args:
        source: the checkpoint to model the new one on.
        replace: new dtype and shape by the name of a tensor of the source.
        remove: tensors to leave out.
        add: tensors that the source does not have.
        files: small files that win over the source's.
        remove_files: small files of the source to leave out.
        limits: the largest small file.

    Raises:
        WrongCheckpointError: the source lacks a tensor to replace or remove, or has one to add.
        FormatError: a file whose name is not that of a small file.
        LimitError: a small file that is too large.
    """
    changes = Changes(replace or {}, frozenset(remove), tuple(add), files or {}, frozenset(remove_files))
    _check_tensors(source, changes)
    for name, data in changes.files.items():
        check_small_file(name, len(data), limits)
    plan = FORMATS[source.format].plan or plan_output
    return plan(source, changes)


@contextmanager
def write_checkpoint(out: Location, plan: OutputPlan, *, force: bool = False) -> Iterator[CheckpointWriter]:
    """Write ``plan`` at ``out``: the output appears, whole, when the ``with`` ends, or not at all.

    Args:
        out: a path that does not exist yet, in a folder whose missing parents are made, or in a bucket.
        plan: what to write.
        force: replace files of an earlier output that are written again; others in its directory stay.

    Raises:
        OutputExistsError: ``out`` exists and ``force`` is False.
        NoSpaceError: the output does not fit on the disk.
        CannotCreateError: ``out`` cannot be written, or must not be replaced.
    """
    # A bucket is never full.
    room = filling(out, plan.total_bytes, what="the checkpoint") if isinstance(out, Path) else nullcontext()
    with room, plan.writer(out, force=force) as writer:
        yield writer


def _check_tensors(source: Checkpoint, changes: Changes) -> None:
    for name in (*changes.replace, *changes.remove):
        if name not in source.tensors:
            raise WrongCheckpointError(name, f"not in {source.path}")
    known = set(source.tensors)
    for info in changes.add:
        if info.name in known:
            raise WrongCheckpointError(info.name, f"already in {source.path}")
        known.add(info.name)

"""What formats share in writing: how an output begins, appears and is described; its small files and notes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from maskreg.checkpoint.files import left_out_note
from maskreg.checkpoint.output import PendingOutput
from maskreg.checkpoint.plan import OutputPlan
from maskreg.checkpoint.safetensors import build_shard
from maskreg.checkpoint.writer import CheckpointWriter
from maskreg.disk import creating, filling
from maskreg.errors import UsageError
from maskreg.exchange.base import Written
from maskreg.exchange.outgoing import Outgoing
from maskreg.tensors.info import TensorInfo, batches

PartT = TypeVar("PartT")


def sources_of(update: Outgoing) -> tuple[Path, ...]:
    """What an output must not replace."""
    path = None if update.source is None else update.source.path
    return (path.resolve(),) if isinstance(path, Path) else ()


def one_file_plan(
    update: Outgoing, out: Path, file_name: str, tensors: Sequence[TensorInfo], metadata: Mapping[str, str]
) -> OutputPlan:
    """A plan for one safetensors file: ``out`` itself if its name ends so, else in a folder with the small files."""
    single = out.suffix == ".safetensors"
    files = {} if single or update.source is None else update.files.written
    shard = build_shard(file_name, tensors, metadata)
    return OutputPlan(shards=(shard,), files=files, single_file=single, sources=sources_of(update))


def offsets_in(plan: OutputPlan) -> dict[str, int]:
    """Where each tensor of a plan begins in the stream of its data."""
    offsets, position = {}, 0
    for info in plan.tensors:
        offsets[info.name] = position
        position += info.nbytes
    return offsets


def values_written(
    update: Outgoing, out: Path, size: int, kept_files: tuple[str, ...], *, holds_files: bool
) -> Written:
    """What was written of all values of an update; its notes say what is not in it."""
    manifest, notes = update.artifact.manifest, []
    if manifest.target.cast:
        notes.append("the target is a bf16 cast: read back, it is recorded as the bf16 checkpoint that it is here")
    if not manifest.exact:
        notes.append(f"rule {manifest.rule} drops small changes: the result is not the target")
    if update.files.written and not holds_files:
        names = ", ".join(sorted(update.files.written))
        notes.append(f"left out, for this output has no room for small files: {names}")
    if update.files.left_out:
        notes.append(left_out_note(update.files.left_out))
    return Written(
        out=out,
        tensors=len(update.changed),
        coordinates=sum(update.counts.values()),
        bytes=size,
        kept_files=kept_files,
        notes=tuple(notes),
    )


@contextmanager
def planned_output(update: Outgoing, plan: OutputPlan, out: Path, *, force: bool) -> Iterator[CheckpointWriter]:
    """Safetensors files that appear whole when the ``with`` ends, or not at all."""
    with filling(out, plan.total_bytes), CheckpointWriter(out, plan, force=force) as writer, update.working():
        yield writer


def folder_written(
    update: Outgoing,
    out: Path,
    document_name: str,
    file_name: str,
    most: int,
    *,
    write_file: Callable[[Path, Sequence[TensorInfo]], PartT],
    describe: Callable[[Mapping[str, PartT]], Mapping[str, Any]],
    weights: str,
    force: bool,
) -> Written:
    """Write a folder that appears whole or not at all: files of tensors, small files, and a document about all files.

    ``file_name``: of the file with number ``{n}`` of ``{count}``, whose tensors have at ``most`` so many bytes, or are
    one larger tensor. ``describe`` makes the document of what ``write_file`` returned for each. ``weights``: pattern of
    files of which a folder that ``force`` replaces has one.

    Raises:
        UsageError: a small file of the target has the name of the document.
    """
    small, groups = update.files.written, list(batches(update.changed.values(), most, lambda info: info.nbytes))
    files = {file_name.format(n=n, count=len(groups)): group for n, group in enumerate(groups)}
    if document_name in small:
        raise UsageError(f"the format has a {document_name} of its own, and so has the target", hint="use slime")
    needed = sum(map(len, small.values())) + sum(info.nbytes for info in update.changed.values())
    names = frozenset({document_name, *files, *small})
    pending = PendingOutput(out, is_file=False, weights=weights, names=names, sources=sources_of(update), force=force)
    with filling(pending.path, needed), creating(pending.path):
        try:
            pending.begin(needed)
            with update.working():
                parts = {name: write_file(pending.work / name, infos) for name, infos in files.items()}
                document = (json.dumps(describe(parts), indent=2) + "\n").encode()
                for name, data in {**small, document_name: document}.items():
                    with (pending.work / name).open("xb") as file:
                        file.write(data)
                        sync_file(file)
            size = sum(file.stat().st_size for file in pending.work.iterdir())
            pending.commit()
        finally:
            pending.discard()
    return values_written(update, pending.path, size, pending.kept, holds_files=True)


def sync_file(file: BinaryIO) -> None:
    """Make what was written to a file durable."""
    file.flush()
    os.fsync(file.fileno())

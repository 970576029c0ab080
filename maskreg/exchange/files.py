"""Files of exchange formats: what other tools wrote, the small files beside it, and how a new output appears."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from maskreg.checkpoint import companions
from maskreg.checkpoint.base import Checkpoint
from maskreg.checkpoint.output import PendingOutput
from maskreg.checkpoint.safetensors.header import build_shard
from maskreg.checkpoint.safetensors.writer import SafetensorsPlan
from maskreg.disk import creating, sync_folder
from maskreg.document import parse_object
from maskreg.errors import FormatError, NotFoundError
from maskreg.exchange.lineage import KEY, Lineage
from maskreg.exchange.outgoing import Outgoing
from maskreg.exchange.patched import Patch, PatchedCheckpoint
from maskreg.limits import Limits
from maskreg.space import filling
from maskreg.tensors.info import TensorInfo
from maskreg.tensors.names import shown


def parse_document(data: bytes, path: Path, limits: Limits) -> dict[str, Any]:
    """A JSON object that another tool wrote.

    Raises:
        DataError: malformed, or beyond a limit.
    """
    return parse_object(data, str(path), max_bytes=limits.index_json_bytes, max_values=16 * limits.tensors)


def tensor_of(source: Checkpoint, name: str) -> TensorInfo:
    """A tensor of the source that an update names.

    Raises:
        FormatError: the source has no such tensor.
    """
    info = source.tensors.get(name)
    if info is None:
        raise FormatError(
            f"tensor {shown(name)}: not in the source {source.path}",
            hint="give the source checkpoint that the update was made on",
        )
    return info


def require_folder(path: Path, accepts: str) -> None:
    """Refuse what is not a folder.

    Raises:
        NotFoundError: it is none.
    """
    if not path.is_dir():
        raise NotFoundError(f"{path}: not a folder", hint=f"this format is {accepts}")


def target_of(
    source: Checkpoint,
    patches: Mapping[str, Patch],
    path: Path,
    lineage: Lineage | None,
    own: Collection[str],
    limits: Limits,
) -> PatchedCheckpoint:
    """The checkpoint that an update gives: the source's tensors and small files, each replaced where the update has it.

    Args:
        source: the checkpoint that it belongs to.
        patches: by tensor name.
        path: of the update; small files beside it belong to the target.
        lineage: where it comes from, if maskreg wrote it.
        own: names of the update's own files.
        limits: the largest small file.

    Raises:
        FormatError: the lineage has a check for a tensor that the source lacks.
    """
    brought = companions.small_files(path, limits) if path.is_dir() else {}
    brought = {name: file for name, file in brought.items() if name not in own}
    removed = lineage.removed_files if lineage else ()
    kept = {name: file for name, file in source.small_files().items() if name not in removed}
    checks = lineage.checks if lineage else {}
    for name in checks:
        tensor_of(source, name)
    hub = lineage.target.hub if lineage else ""
    return PatchedCheckpoint(source, patches, path=path, hub=hub, files={**kept, **brought}, checks=checks)


def sources_of(update: Outgoing) -> tuple[Path, ...]:
    """What an output must not replace."""
    return () if update.source is None else (update.source.path.resolve(),)


def file_notes(update: Outgoing, *, holds_files: bool) -> tuple[str, ...]:
    """What becomes of the target's small files, one sentence each; none where nothing is left out."""
    notes = []
    if update.files and not holds_files:
        notes.append(f"left out, for this output has no room for small files: {', '.join(sorted(update.files))}")
    if update.left_out_files:
        names = ", ".join(update.left_out_files)
        notes.append(f"left out, because it can run code: {names}; --with-code takes it along")
    return tuple(notes)


def value_notes(update: Outgoing) -> tuple[str, ...]:
    """What no format of values holds of an artifact, one sentence each."""
    manifest, notes = update.artifact.manifest, []
    if manifest.target.cast:
        notes.append("the target is a bf16 cast: read back, it is recorded as the bf16 checkpoint that it is here")
    if not manifest.exact:
        notes.append(f"rule {manifest.rule} drops small changes: the result is not the target")
    return tuple(notes)


def one_file_plan(
    update: Outgoing, out: Path, file_name: str, tensors: Sequence[TensorInfo], metadata: Mapping[str, str]
) -> SafetensorsPlan:
    """A plan for one safetensors file: ``out`` itself if its name ends so, else in a folder with the small files."""
    single = out.suffix == ".safetensors"
    files = {} if single or update.source is None else update.files
    shard = build_shard(file_name, tensors, metadata)
    return SafetensorsPlan(shards=(shard,), files=files, single_file=single, sources=sources_of(update))


def offsets_in(plan: SafetensorsPlan) -> dict[str, int]:
    """Where each tensor of a plan begins in the stream of its data."""
    offsets, position = {}, 0
    for info in plan.tensors:
        offsets[info.name] = position
        position += info.nbytes
    return offsets


@contextmanager
def new_folder(
    update: Outgoing, out: Path, *, weights: str, names: Collection[str], needed_bytes: int, force: bool
) -> Iterator[PendingOutput]:
    """A folder that appears whole when the ``with`` ends, or not at all; written in :attr:`PendingOutput.work`.

    Args:
        update: whose source must not be replaced.
        out: where it appears.
        weights: pattern of a file that every output of the format has; only a folder with one may be replaced.
        names: files that it will have; those of folders end in ``/``.
        needed_bytes: about how large it gets.
        force: replace an earlier output.

    Raises:
        CannotCreateError: ``out`` exists or cannot be written.
        NoSpaceError: the disk would be full.
    """
    pending = PendingOutput(
        out, is_file=False, weights=weights, names=frozenset(names), sources=sources_of(update), force=force
    )
    with filling(pending.path, needed_bytes), creating(pending.path):
        try:
            pending.begin(needed_bytes)
            yield pending
            sync_folder(pending.work)
            pending.commit()
        finally:
            pending.discard()


def sync_file(file: BinaryIO) -> None:
    """Make what was written to a file durable."""
    file.flush()
    os.fsync(file.fileno())


def lineage_metadata(text: str) -> dict[str, str]:
    """The metadata of a safetensors file that maskreg writes for another tool."""
    return {"format": "pt", KEY: text}

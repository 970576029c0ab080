"""Convert: write an artifact in another tool's format, and make an artifact of what another tool wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from maskreg.bucket import Location
from maskreg.digest import Digest
from maskreg.errors import NotFoundError, UsageError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.result import Result
from maskreg.workspace.sources import SourceOptions, sources
from maskreg.workspace.storing import Naming, Stored, free_path, remember
from maskreg.workspace.verbs.extract import CardOptions, card_of
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Workspace, opened

if TYPE_CHECKING:
    from maskreg.checkpoint import Checkpoint
    from maskreg.exchange.base import Format, Masks, Values


@dataclass(frozen=True)
class Converted(Result):
    """What an artifact was converted to.

    Attributes:
        format: what it was converted to.
        tensors: tensors in it.
        coordinates: values in it, or coordinates of its masks.
        bytes: size of its files.
    """

    ref: Ref | None
    digest: Digest
    format: str
    source: Location | None
    out: Path
    tensors: int
    coordinates: int
    bytes: int
    kept_files: tuple[str, ...]
    notes: tuple[str, ...]


def convert_to(
    artifact: ArtifactLike,
    to: str,
    out: str | Path,
    *,
    options: Mapping[str, Any] | None = None,
    with_code: bool = False,
    force: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **find: Unpack[SourceOptions],
) -> Converted:
    """Write an artifact in another tool's format.

    The output appears at the end, whole, or not at all. Values are checked before and after they are decoded;
    formats of masks need no source.

    Args:
        to: the format, such as ``slime``.
        options: options of the format by name, such as ``{"encoding": "overwrite"}``; a value can be text.

    Raises:
        UsageError: an unknown format or option, or the format cannot hold this artifact; names the tensor.
        PartAbsentError: the part that the format holds is absent.
    """
    from maskreg.exchange import format_named
    from maskreg.exchange.outgoing import Outgoing

    target_format = format_named(to)
    checked = _checked_options(target_format, options or {})
    with opened(workspace) as space:
        # Before any work is done; it is checked again when the output appears.
        path = free_path(out, force=force, source=find.get("source"))
        named = space.find(artifact)
        side, is_mask = named.artifact.manifest.source, target_format.holds == "mask"
        attempts = sources(space, side, **find)
        for attempt in [nullcontext()] if is_mask else attempts:
            with attempt as checkpoint:
                update = Outgoing(named.artifact, checkpoint, with_code=with_code, progress=progress)
                written = target_format.write(update, path, force=force, **checked)
        used = None if checkpoint is None else checkpoint.path
    return Converted(ref=named.ref, digest=named.digest, format=target_format.name, source=used, **vars(written))


def convert_from(
    path: str | Path,
    format: str,
    source: CheckpointLike,
    name: str | Ref | None = None,
    *,
    with_code: bool = False,
    force: bool = False,
    download: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Unpack[CardOptions],
) -> Stored:
    """Make an artifact of what another tool wrote, and store it in the local registry.

    Values give the artifact that extraction makes of the source and the patched source; a mask gives an artifact of
    kind mask. What :func:`convert_to` wrote gives the same artifact again where the format holds all of it.

    Args:
        path: the file or folder.
        format: what it is, such as ``slime``.
        source: the checkpoint that it belongs to.

    Raises:
        UsageError: an unknown format, or a name with a digest.
        DataError: the file breaks its format, is damaged, exceeds a limit or does not fit the source; names the tensor.
        ConfigError: an optional package is missing.
    """
    from maskreg.exchange import format_named

    source_format = format_named(format)
    file = _input(path, source_format)
    card = card_of(options)
    with (
        opened(workspace) as space,
        space.checkpoint(source, download=download, side="source") as checkpoint,
        ExitStack() as stack,
    ):
        naming = Naming(space, name, careful=not force)
        try:
            incoming = source_format.read(file, checkpoint, stack.enter_context)
        except NotFoundError as error:
            error.hint = error.hint or _accepted(source_format)
            raise
        digest, notes = _stored(incoming, checkpoint, space, with_code, progress)
        stored = naming.store(digest, card, (*incoming.notes, *notes))
        remember(space, stored.artifact.manifest.source.root, checkpoint.path)
        return stored


def _stored(
    incoming: Values | Masks, source: Checkpoint, space: Workspace, with_code: bool, progress: Progress
) -> tuple[Digest, tuple[str, ...]]:
    from maskreg.exchange.base import Masks
    from maskreg.exchange.incoming import PatchedCheckpoint
    from maskreg.flow.extract.extraction import Provenance, extract
    from maskreg.flow.masks import store_mask

    lineage = incoming.lineage
    if lineage is not None and lineage.source.hub and not source.hub:
        source = PatchedCheckpoint(source, {}, path=source.path, hub=lineage.source.hub)
    if isinstance(incoming, Masks):
        return store_mask(incoming, source, space.root, progress=progress), ()
    provenance = Provenance()
    if lineage is not None:
        parents = tuple(map(Digest, lineage.parents))
        provenance = Provenance(parents, lineage.recipe, lineage.source.root, lineage.checks)
    extracted = extract(
        source,
        incoming.target,
        space.root,
        rule=lineage.rule if lineage else "exact",
        reversible=bool(lineage and lineage.reversible),
        with_code=with_code,
        provenance=provenance,
        progress=progress,
    )
    return extracted.digest, extracted.notes


def _checked_options(target_format: Format, options: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {}
    for name, value in options.items():
        if name not in target_format.options:
            accepted = ", ".join(target_format.options) or "none"
            raise UsageError(f"{target_format.name} has no option {name!r}", hint=f"its options: {accepted}")
        is_number = isinstance(target_format.options[name], int)
        known[name] = int(value) if is_number and re.fullmatch(r"[0-9]{1,18}", str(value)) else value
        if type(known[name]) is not type(target_format.options[name]):
            raise UsageError(f"{name}: {value!r} was given", hint=f"pass {'a whole number' if is_number else 'text'}")
    return known


def _input(path: str | Path, source_format: Format) -> Path:
    expanded = Path(path).expanduser()
    if path == "" or not expanded.exists():
        raise NotFoundError(f"{path or 'the path'}: no such file or folder", hint=_accepted(source_format))
    return expanded


def _accepted(source_format: Format) -> str:
    return f"{source_format.name} is {source_format.accepts}"

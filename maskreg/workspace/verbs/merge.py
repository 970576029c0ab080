"""Merge: several updates of one source become one update, one checkpoint, or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskreg.bucket import Location
from maskreg.errors import UsageError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref
from maskreg.result import Result
from maskreg.workspace.sources import sources
from maskreg.workspace.storing import Naming, Stored, free_path, remember, shared_family
from maskreg.workspace.verbs.merge_recipe import artifacts_of, request_of
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Named, Workspace, opened

if TYPE_CHECKING:
    from maskreg.digest import Digest
    from maskreg.flow.apply.on_disk import Written
    from maskreg.flow.merge.checkpoint import MergedCheckpoint, Report


@dataclass(frozen=True)
class Merged(Result):
    """What a merge made, and what it did.

    Attributes:
        method: the method.
        operands: names of the artifacts, in order.
        recipe: the method, its weights and settings, complete; the lineage recipe of the artifact.
        report: coordinates that moved before and after, conflicts and sign disagreements, by role.
        artifact: the artifact; None when none was to be made.
        out: the checkpoint; None when none was to be written.
    """

    method: str
    operands: tuple[str, ...]
    recipe: Mapping[str, Any]
    report: Report
    artifact: Stored | None
    out: Path | None
    source: Location
    notes: tuple[str, ...]
    skipped_files: tuple[str, ...] = ()
    kept_files: tuple[str, ...] = ()

    @property
    def digest(self) -> Digest | None:
        """The artifact's digest; None when there is none."""
        return self.artifact.digest if self.artifact is not None else None

    @property
    def ref(self) -> Ref | None:
        """The artifact's name; None when there is none."""
        return self.artifact.ref if self.artifact is not None else None


def merge(
    artifacts: Sequence[ArtifactLike] = (),
    name: str | Ref | None = None,
    *,
    method: str = "",
    weights: Sequence[float] | Mapping[str, float] | None = None,
    settings: Mapping[str, Any] | None = None,
    recipe: str | Path | None = None,
    source: CheckpointLike | None = None,
    out: str | Path | None = None,
    dry_run: bool = False,
    device: str = "cpu",
    description: str = "",
    force: bool = False,
    download: bool = False,
    with_code: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Merged:
    """Merge updates of one source into one artifact, into a checkpoint, or both.

    Arithmetic is in fp32, and memory is bounded, whatever the size of the model. Merging one artifact with weight 1
    gives its target's bits. The result names the artifacts as its parents and the recipe as its lineage.

    Args:
        artifacts: references, digests or open artifacts, with deltas; none when the recipe names them.
        name: ``[project/]name[:tag]`` of the new artifact; without a name and without ``out``, it is known by its
            digest alone.
        method: name of a method; ``maskreg.flow.merge.methods.METHODS`` has all of them.
        weights: in the order of the artifacts, or by reference; 1 for those that are not named.
        settings: of the method; ``mask`` is the mask for ``restrict``.
        recipe: a YAML file with all of these, in mergekit's layout, whose models are artifacts or checkpoints. Updates
            of checkpoints are extracted, and stored without a name.
        source: the checkpoint that the artifacts were made from. Without one, it is the ``base_model`` of the recipe;
            else it is looked for where this machine has seen it, then in the hub cache.
        out: where to write the merged checkpoint; none is written without it.
        dry_run: compute everything, and write nothing.

    Raises:
        UsageError: an unknown method or setting, values that make no sense or become too large for the dtype, or an
            artifact that is named twice.
        PairMismatchError: artifacts of different sources, or that do different things to what cannot be merged.
    """
    from maskreg.flow.apply.on_disk import apply
    from maskreg.flow.merge.checkpoint import MergedCheckpoint, compute, store, write

    if isinstance(artifacts, str):
        raise UsageError(f"artifacts is one text, {artifacts!r}", hint="a list of references")
    request = request_of(artifacts, method, weights, settings, recipe)
    if dry_run and (name is not None or out is not None):
        raise UsageError("a dry run makes nothing", hint="leave out the name and the output, or --dry-run")
    how: dict[str, Any] = {"device": device, "with_code": with_code, "progress": progress}
    with opened(workspace) as space:
        path = None if out is None else free_path(out, force=force, source=source)
        naming = Naming(space, name, careful=not force)
        operands, source, remarks = artifacts_of(space, request, source, dry_run=dry_run, download=download, **how)
        mask = space.find(request.mask) if request.mask is not None else None
        card = Card(shared_family(operands), "merge", description=description).checked()
        _require_different(operands)
        # Before the source is looked for and read.
        plan = request.recipe(operands)
        plan.check(len(operands), masked=mask is not None)
        updates, masked = [operand.artifact for operand in operands], None if mask is None else mask.artifact
        parents = tuple(each.digest for each in (*operands, *([mask] if mask is not None else [])))
        side = operands[0].artifact.manifest.source
        stored: Stored | None = None
        written: Written | None = None
        notes: tuple[str, ...] = ()
        for attempt in sources(space, side, source=source, download=download):
            with attempt as before, MergedCheckpoint(updates, before, plan, mask=masked, **how) as merged:
                if dry_run:
                    compute(merged, progress=progress)
                elif name is None and path is not None:
                    written = write(merged, path, force=force, progress=progress)
                else:
                    made = store(merged, space.root, parents, **how)
                    stored = naming.store(made.digest, naming.card_for(made.digest, card), made.notes)
                    notes = made.notes
                    if path is not None:
                        # What was stored is what is written: every block of it is checked once more.
                        written = applied = apply(stored.artifact, before, path, force=force, **how)
                        notes += applied.notes
        remember(space, side.root, before.path)
        return _result(merged, operands, stored, written, (*remarks, *merged.notes, *notes))


def _result(
    merged: MergedCheckpoint,
    operands: Sequence[Named],
    stored: Stored | None,
    written: Written | None,
    notes: tuple[str, ...],
) -> Merged:
    return Merged(
        method=merged.recipe.method.name,
        operands=tuple(operand.name for operand in operands),
        recipe=merged.recipe.to_json(),
        report=merged.report(),
        artifact=stored,
        out=written.out if written else None,
        source=merged.source.path,
        notes=notes,
        skipped_files=written.skipped_files if written else (),
        kept_files=written.kept_files if written else (),
    )


def _require_different(operands: Sequence[Named]) -> None:
    """Refuse an artifact that is named twice: its changes would count twice, as if two agreed."""
    names: dict[Digest, str] = {}
    for operand in operands:
        if (first := names.get(operand.digest)) is not None:
            same = "is named twice" if first == operand.name else f"and {operand.name} are one artifact"
            raise UsageError(f"{first} {same}", hint="name it once; a larger --weight makes it count more")
        names[operand.digest] = operand.name

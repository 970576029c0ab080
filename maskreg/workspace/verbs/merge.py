"""Merge: several updates of one source become one update, one checkpoint, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from maskreg.bucket import Location
from maskreg.errors import UsageError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref
from maskreg.result import Result
from maskreg.workspace.sources import SourceOptions, sources
from maskreg.workspace.storing import Naming, Stored, free_path, require_different, shared_family
from maskreg.workspace.workspace import ArtifactLike, Named, WorkOptions, Workspace, opened, split_options

if TYPE_CHECKING:
    from maskreg.digest import Digest
    from maskreg.flow.apply.on_disk import Written
    from maskreg.flow.merge.checkpoint import Report

T = TypeVar("T")


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


class MergeOptions(SourceOptions, WorkOptions, total=False):
    """The source, and how it is read."""


def merge(
    artifacts: Sequence[ArtifactLike],
    name: str | Ref | None = None,
    *,
    method: str,
    weights: Sequence[float] | Mapping[str, float] | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    dry_run: bool = False,
    description: str = "",
    force: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Unpack[MergeOptions],
) -> Merged:
    """Merge updates of one source into one artifact, into a checkpoint, or both.

    Arithmetic is in fp32, and memory is bounded for models of any size. Merging one artifact with weight 1
    gives its target's bits. The result names the artifacts as its parents and the recipe as its lineage.

    Args:
        artifacts: references, digests or open artifacts, with deltas.
        name: ``[project/]name[:tag]`` of the new artifact; without a name and without ``out``, it is known by its
            digest alone.
        method: name of a method; ``maskreg.flow.merge.methods.METHODS`` has all of them.
        weights: in the order of the artifacts, or by reference; 1 for those that are not named.
        settings: of the method; ``mask`` is the mask for ``restrict``.
        out: where to write the merged checkpoint; none is written without it.
        dry_run: compute everything, and write nothing.

    Raises:
        UsageError: an unknown method or setting, values that make no sense or become too large for the dtype, or an
            artifact that is named twice.
        PairMismatchError: artifacts of different sources, or that do different things to what cannot be merged.
    """
    from maskreg.flow.apply.on_disk import apply
    from maskreg.flow.merge.checkpoint import MergedCheckpoint, compute, store, write
    from maskreg.flow.merge.recipe import Recipe

    _check(artifacts, makes=name is not None or out is not None, dry_run=dry_run)
    find, work = split_options(options, SourceOptions, WorkOptions)
    how = {**work, "progress": progress}
    with opened(workspace) as space:
        path = None if out is None else free_path(out, force=force, source=find.get("source"))
        naming = Naming(space, name, careful=not force)
        operands = [space.find(artifact) for artifact in artifacts]
        require_different(operands)
        settings = dict(settings or {})
        masks = [space.find(settings.pop("mask"))] if "mask" in settings else []
        card, derived = Card(description=description).checked(), Card(shared_family(operands), "merge").checked()
        # Before the source is looked for and read.
        recipe = Recipe.of(method, _weights(space, weights, operands), settings)
        recipe.check(len(operands), masked=bool(masks))
        updates, mask = [operand.artifact for operand in operands], masks[0].artifact if masks else None
        parents = tuple(each.digest for each in (*operands, *masks))
        side = operands[0].artifact.manifest.source
        stored: Stored | None = None
        written: Written | None = None
        notes: tuple[str, ...] = ()
        for attempt in sources(space, side, **find):
            with attempt as before, MergedCheckpoint(updates, before, recipe, mask=mask, **how) as merged:
                if dry_run:
                    compute(merged, progress=progress)
                elif name is None and path is not None:
                    written = write(merged, path, force=force, progress=progress)
                else:
                    made = store(merged, space.root, parents, **how)
                    stored = naming.store(made.digest, card, made.notes, derived=derived)
                    notes = made.notes
                    if path is not None:
                        # What was stored is what is written: every block of it is checked once more.
                        written = applied = apply(stored.artifact, before, path, force=force, **how)
                        notes += applied.notes
        return Merged(
            method=recipe.method.name,
            operands=tuple(operand.name for operand in operands),
            recipe=recipe.to_json(),
            report=merged.report(),
            artifact=stored,
            out=written.out if written else None,
            source=merged.source.path,
            notes=(*merged.notes, *notes),
            skipped_files=written.skipped_files if written else (),
            kept_files=written.kept_files if written else (),
        )


def _check(artifacts: Sequence[ArtifactLike], *, makes: bool, dry_run: bool) -> None:
    if isinstance(artifacts, str):
        raise UsageError(f"artifacts is one text, {artifacts!r}", hint="a list of references")
    if not artifacts:
        raise UsageError("nothing to merge", hint="name one artifact or several")
    if dry_run and makes:
        raise UsageError("a dry run makes nothing", hint="leave out the name and the output, or the dry run")


def _weights(
    space: Workspace, weights: Sequence[float] | Mapping[str, float] | None, operands: Sequence[Named]
) -> Sequence[float]:
    if weights is not None and not isinstance(weights, Mapping):
        return weights
    return weights_in_order(
        weights or {}, {each.digest: each.name for each in operands}, lambda text: space.find(text).digest
    )


def weights_in_order(weights: Mapping[str, float], merged: Mapping[T, str], find: Callable[[str], T]) -> list[float]:
    """Weights by reference in the order of what is merged; 1 for what has none.

    Args:
        merged: the names of what is merged, by what ``find`` gives for a reference.
    """
    given: dict[T, float] = {}
    for text, weight in weights.items():
        key = find(text)
        if key in given or key not in merged:
            fault = "has one already" if key in given else "is not merged"
            raise UsageError(f"a weight for {text}, which {fault}", hint=f"merged are {', '.join(merged.values())}")
        given[key] = weight
    return [given.get(key, 1.0) for key in merged]

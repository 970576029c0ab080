"""Analyze: the geometry of an update beside its rounding null, stored under a name; and how an update grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from maskreg.artifact.presence import read_manifest
from maskreg.checkpoint.roles import Selection
from maskreg.checkpoint.run import checkpoints_of
from maskreg.digest import Digest
from maskreg.errors import DataError, NotFoundError, UsageError
from maskreg.extras import requiring
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref, is_pattern
from maskreg.result import plain
from maskreg.words import counted
from maskreg.workspace.sources import sources
from maskreg.workspace.storing import Naming
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Named, Workspace, as_name, opened

if TYPE_CHECKING:
    from maskreg.analysis.matrix import AnalysisSpec
    from maskreg.analysis.papers import TableBeside
    from maskreg.artifact.reader import Artifact


class AnalysisOptions(TypedDict, total=False):
    """What is measured, and how.

    Attributes:
        metrics: groups of figures: all by default, of an analysis; of a trajectory beyond the cheap ones, and without
            rounding nulls: ``angles``, ``shift``, ``projection``, ``coverage`` and ``concentration``.
        presets: definitions of coverage; all by default.
        ranks: directions of principal angles.
        seed: seed of the rounding null, and of random range finding.
        exact_up_to: smaller sides up to this get an exact SVD; 4,096 by default.
    """

    metrics: Sequence[str]
    presets: Sequence[str]
    ranks: Sequence[int]
    roles: Sequence[str]
    layers: str
    seed: int
    exact_up_to: int


@dataclass(frozen=True)
class Analysis:
    """The geometry of an update.

    Attributes:
        artifact: that artifact, of kind ``analysis``.
        analysis: every figure, as JSON values; ``maskreg analyze --explain`` and the glossary define them.
    """

    ref: Ref | None
    artifact: Artifact
    was: Digest | None
    analysis: Mapping[str, Any]

    @property
    def digest(self) -> Digest:
        """Digest of the artifact that holds it."""
        return self.artifact.digest

    @property
    def modules(self) -> Mapping[str, Mapping[str, Any]]:
        """Figures of each module, such as ``self_attn.q_proj``."""
        return self.groups("module")

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {name: plain(getattr(self, name)) for name in ("ref", "digest", "was", "analysis", "modules")}

    def beside(self, paper: str) -> tuple[TableBeside, ...]:
        """Every table of a paper, with the figures of this analysis beside it, or why there are none."""
        from maskreg.analysis.papers import beside

        return beside(paper, self.analysis)

    def groups(self, by: str) -> Mapping[str, Mapping[str, Any]]:
        """Figures of groups of tensors; the analysis itself holds those by role and layer."""
        from maskreg.analysis.aggregate import groups_of

        return groups_of(self.analysis, by)


def analyze(
    artifact: ArtifactLike,
    source: CheckpointLike | None = None,
    target: CheckpointLike | None = None,
    name: str | Ref | None = None,
    *,
    device: str = "cpu",
    download: bool = False,
    force: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Unpack[AnalysisOptions],
) -> Analysis:
    """Measure the geometry of an update, and store the result as an artifact of its own.

    Every figure stands beside its rounding null: what bf16 rounding alone makes of noise as strong as the update. An
    interrupted analysis continues where it stopped; one that was made before is returned.

    Args:
        artifact: the update, or an analysis, which is then returned.
        target: the other side; made from the source and the delta by default.
        name: what to call the result; by default the artifact's name with ``-analysis``.

    Raises:
        WrongTargetError: the target is not.
        PartAbsentError: there is no target, and no delta in the local registry to make it from.
    """
    from maskreg.artifact.analysis import read_analysis

    with opened(workspace) as space:
        named = space.find(artifact)
        if named.artifact.manifest.kind == "analysis":
            if any(value for name, value in options.items() if name not in ("seed", "exact_up_to")):
                raise UsageError(
                    f"{named.name} is an analysis already, and shows what was measured",
                    hint="name the artifact that it is of, or leave out metrics, presets, ranks, roles and layers",
                )
            return Analysis(named.ref, named.artifact, None, read_analysis(named.artifact))
        with requiring("an analysis"):
            from maskreg.flow.geometry.analysis import analyze as measure
            from maskreg.flow.geometry.analysis import lineage_recipe

        spec = _spec(options)
        with ExitStack() as stack:
            after = None
            if target is not None:
                after = stack.enter_context(space.checkpoint(target, download=download, side="target"))
            own = None if named.ref is None else replace(named.ref, name=f"{named.ref.name}-analysis", digest=None)
            ref = own if name is None else as_name(name)
            digest = _earlier(space, named, ref, lineage_recipe(named.artifact, after, spec, device))
            naming = Naming(space, ref, careful=not force, digest=digest)
            if digest is None:
                side = named.artifact.manifest.source
                for attempt in sources(space, side, source=source, download=download):
                    with attempt as before:
                        measured = measure(
                            named.artifact, before, after, space.root, spec, device=device, progress=progress
                        )
                if measured.resumed:
                    space.note(f"{counted(measured.resumed, 'tensor')} finished by an earlier run")
                digest = measured.digest
        stored = naming.store(digest, Card())
    return Analysis(stored.ref, stored.artifact, stored.was, read_analysis(stored.artifact))


def trajectory(
    source: CheckpointLike,
    checkpoints: Sequence[CheckpointLike],
    *,
    by: str | None = None,
    device: str = "cpu",
    download: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
    **options: Unpack[AnalysisOptions],
) -> dict[str, Any]:
    """Measure how an update grew over the checkpoints of one run.

    An interrupted measurement continues where it stopped, while the files are what they were.

    Args:
        source: where the run began.
        checkpoints: two or more, in the order of the run; ``"out/step-*"`` stands for all that match it, step 2 before
            step 10.
        by: ``role``, ``layer``, ``module`` or ``tensor`` for rows of every such group of tensors too.

    Returns:
        A row of figures for each checkpoint, of all tensors and of each group, as JSON values.

    Raises:
        UsageError: fewer than two checkpoints, or there is no such grouping.
        WrongCheckpointError: a checkpoint lacks a tensor of the source, or has it in another shape.
    """
    with requiring("a trajectory"):
        from maskreg.flow.geometry.trajectory import trajectory as measure

    spec = _spec(options, metrics=())
    with opened(workspace) as space, ExitStack() as stack:
        start = stack.enter_context(space.checkpoint(source, download=download))
        run: list[CheckpointLike] = []
        for given in checkpoints:
            is_some = isinstance(given, str) and is_pattern(given)
            run += checkpoints_of(str(given), space.settings.options_of) if is_some else [given]
        points = [stack.enter_context(space.checkpoint(path, download=download)) for path in run]
        return measure(start, points, spec, by=by, root=space.root, device=device, progress=progress)


def _spec(options: AnalysisOptions, **defaults: Any) -> AnalysisSpec:
    from maskreg.flow.geometry.analysis import analysis_spec

    given: dict[str, Any] = {name: value for name, value in options.items() if value not in ((), [], "")}
    selection = Selection.parse(given.pop("roles", ()), given.pop("layers", ""))
    return analysis_spec(**{**defaults, **given}, selection=selection)


def _earlier(space: Workspace, named: Named, ref: Ref | None, recipe: dict[str, Any]) -> Digest | None:
    """The latest analysis of this artifact with this lineage recipe that the name has pointed to; None without one."""
    from maskreg.flow.geometry.analysis import has_masters

    # An artifact's leaves do not tell one full-precision master from another with the same bf16 cast.
    if ref is None or space.local.head(ref) is None or has_masters(recipe):
        return None
    for entry in reversed(space.local.history(ref)):
        if entry.digest is None:
            continue
        try:
            _, manifest = read_manifest(space.local.store, entry.digest)
        except (NotFoundError, DataError):
            # Collected since, or damaged: analyze again.
            continue
        if manifest.kind == "analysis" and manifest.parents == (str(named.digest),) and manifest.recipe == recipe:
            space.note("this was analyzed before in the same way; this is that result")
            return entry.digest
    return None

"""Plots for papers and notebooks: the figures of a report, as figures of Matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maskreg.checkpoint.roles import Selection
from maskreg.errors import UsageError
from maskreg.progress import SILENT, Progress
from maskreg.workspace.several import expanded
from maskreg.workspace.sources import sources
from maskreg.workspace.verbs.compare import compare
from maskreg.workspace.workspace import ArtifactLike, CheckpointLike, Workspace, opened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from maskreg.reports.pictures import Plot


def density(artifact: ArtifactLike, *, theme: str = "light", workspace: Workspace | None = None) -> Figure:
    """The density of every module in every layer of a mask, as a heat map.

    Raises:
        UsageError: the mask has no layers; or there is no such theme.
    """
    _require_libraries()
    from maskreg.reports.modules import grid_of
    from maskreg.reports.page import density_plot

    with opened(workspace) as space:
        named = space.find(artifact)
        grid = grid_of(named.artifact.tensors)
    if not grid.cells:
        raise UsageError(f"{named.name} has no tensor in any layer, so there is no density by layer to draw")
    return _figure(density_plot(grid), theme)


def magnitude(
    artifact: ArtifactLike,
    *,
    source: CheckpointLike | None = None,
    download: bool = False,
    theme: str = "light",
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Figure:
    """The density of a mask by the magnitude of the source's weights, beside what rounding alone would move."""
    _require_libraries()
    from maskreg.flow.geometry.exponents import by_exponent
    from maskreg.reports.page import magnitude_plot

    with opened(workspace) as space:
        named = space.find(artifact)
        named.artifact.require("mask")
        for attempt in sources(space, named.artifact.manifest.source, source=source, download=download):
            with attempt as checkpoint:
                counts = by_exponent(named.artifact, checkpoint, progress=progress)
    if not counts.members.any():
        raise UsageError(f"no tensor of {named.name} is stored in bf16, so there is no magnitude to draw")
    return _figure(magnitude_plot(counts), theme)


def overlap(
    mask: ArtifactLike,
    against: ArtifactLike,
    *,
    source: CheckpointLike | None = None,
    download: bool = False,
    allow_different: bool = False,
    theme: str = "light",
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Figure:
    """The overlap of two masks, as bars beside the expectation of every null and the maximum.

    Raises:
        UsageError: a mask is empty; or there is no such theme.
    """
    _require_libraries()
    from maskreg.reports.page import overlap_plot

    (pair,) = compare(
        mask,
        against,
        source=source,
        download=download,
        allow_different=allow_different,
        progress=progress,
        workspace=workspace,
    ).pairs
    if not pair.whole.counts.most:
        raise UsageError(f"{' or '.join(pair.names)} is empty, so there is no overlap to draw")
    return _figure(overlap_plot(1, pair), theme)


def consensus(
    *masks: ArtifactLike,
    roles: Sequence[str] = (),
    layers: str = "",
    allow_different: bool = False,
    theme: str = "light",
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Figure:
    """How many of several masks hold each coordinate of a matrix, as a heat map of blocks of rows and columns.

    Raises:
        UsageError: there are fewer than two masks; what is chosen is not one matrix; or there is no such theme.
    """
    _require_libraries()
    from maskreg.flow.overlap.survey import picture_consensus
    from maskreg.reports.page import consensus_plot

    selection = Selection.parse(roles, layers)
    with opened(workspace) as space:
        artifacts = [space.find(mask).artifact for mask in expanded(space, masks)]
        if len(artifacts) < 2:
            raise UsageError("a consensus needs two masks or more")
        pictures = picture_consensus(artifacts, allow_different=allow_different, selection=selection, progress=progress)
    if len(pictures) != 1:
        raise UsageError(
            "the tensors that are chosen are not one matrix", hint="choose one: roles=['q_proj'], layers='0'"
        )
    return _figure(consensus_plot(1, pictures[0]), theme)


def trajectory(growth: Mapping[str, Any], *, theme: str = "light") -> Figure:
    """The growth of an update over the checkpoints of its run.

    Args:
        growth: what ``maskreg.trajectory`` returned.

    Raises:
        FormatError: not a trajectory.
        UsageError: it has no checkpoint; or there is no such theme.
    """
    _require_libraries()
    from maskreg.reports.geometry import trajectory_of
    from maskreg.reports.page import trajectory_plot

    run = trajectory_of(growth)
    if not run.checkpoints:
        raise UsageError("a trajectory without checkpoints has nothing to draw")
    return _figure(trajectory_plot(run), theme)


def _require_libraries() -> None:
    from maskreg.reports.theme import require_libraries

    require_libraries()


def _figure(plot: Plot, theme: str) -> Figure:
    from maskreg.reports.pictures import figure
    from maskreg.reports.theme import THEMES

    themes = {each.name: each for each in THEMES}
    if theme not in themes:
        raise UsageError(f"no theme is called {theme!r}", hint=f"theme: {' or '.join(themes)}")
    return figure(plot, themes[theme])

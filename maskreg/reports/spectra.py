"""Plots of an update's spectrum and of its trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from maskreg.reports.drawing import Drawing
from maskreg.reports.geometry import Geometry, Summary, Trajectory
from maskreg.reports.theme import WIDE, Size, Theme, in_percent

_MOST_LABELS = 14


def spectra(geometry: Geometry, theme: Theme, size: Size = WIDE) -> Drawing:
    """The share of the update's energy in its largest directions, and stable rank by layer; each with the null."""
    figure = Drawing(figsize=(size.width, 5.8 if size.narrow else 3.4), layout="constrained")
    left, right = figure.subplots(2, 1) if size.narrow else figure.subplots(1, 2)
    energies = geometry.energies
    _pair(left, [str(k) for k in energies], list(energies.values()), theme)
    left.set_ylim(-0.03, 1.03)
    left.yaxis.set_major_formatter(FuncFormatter(in_percent))
    left.set_xlabel("largest singular directions")
    left.set_ylabel("share of the update's energy")
    left.legend(loc="upper left")
    _pair(right, list(geometry.layers), list(geometry.layers.values()), theme)
    right.set_yscale("log")
    _plain(right.yaxis)
    right.set_xlabel("layer")
    right.set_ylabel("stable rank (log scale)")
    return figure


def growth(trajectory: Trajectory, theme: Theme, size: Size = WIDE) -> Drawing:
    """Four panels over the checkpoints of a run: density, norm, stable rank, similarity to the final update."""
    figure = Drawing(figsize=(size.width, 9.0 if size.narrow else 5.2), layout="constrained")
    rows, columns = (4, 1) if size.narrow else (2, 2)
    density, norm, rank, similarity = figure.subplots(rows, columns, sharex=True).flat
    points = trajectory.points
    _series(density, [p.density for p in points], theme.observed, "o", "-", "since the source")
    _series(density, [p.step_density for p in points], theme.limit, "s", ":", "since the checkpoint before")
    density.set_ylabel("density")
    density.legend(loc="best")
    _series(norm, [p.relative_norm for p in points], theme.observed, "o", "-", "")
    norm.set_ylabel("norm / norm of the source")
    _series(rank, [p.stable_rank for p in points], theme.observed, "o", "-", "")
    rank.set_ylabel("mean stable rank")
    similarities = [p.similarity_to_final for p in points]
    _series(similarity, similarities, theme.observed, "o", "-", f"top {trajectory.k} directions")
    if trajectory.similarity_by_chance is not None:
        chance = trajectory.similarity_by_chance
        similarity.axhline(chance, color=theme.null, linestyle="--", linewidth=1.4, label="by chance")
    similarity.set_ylim(-0.03, 1.03)
    similarity.set_ylabel("similarity to the final update")
    similarity.legend(loc="best")
    for axes in (density, norm, rank, similarity):
        axes.grid(axis="y", linewidth=0.7)
        if axes is not similarity:
            axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    for axes in (density, similarity):
        axes.yaxis.set_major_formatter(FuncFormatter(in_percent))
    for axes in (rank, similarity)[size.narrow :]:
        _label(axes, [p.name for p in points], rotated=True)
    return figure


def _pair(axes: Any, labels: Sequence[str], values: Sequence[Summary], theme: Theme) -> None:
    _series(axes, [summary.median for summary in values], theme.observed, "o", "-", "this update")
    _series(axes, [summary.null_median for summary in values], theme.null, "s", "--", "rounding alone")
    _label(axes, labels)
    axes.grid(axis="y", linewidth=0.7)


def _series(axes: Any, values: Sequence[float | None], color: str, mark: str, form: str, label: str) -> None:
    points = [(position, value) for position, value in enumerate(values) if value is not None]
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=color, marker=mark, linestyle=form, markersize=4.5, linewidth=1.7, label=label or None)


def _label(axes: Any, labels: Sequence[str], *, rotated: bool = False) -> None:
    stride = max(1, -(-len(labels) // _MOST_LABELS))
    shown = range(0, len(labels), stride)
    rotation: dict[str, Any] = {"rotation": 30, "ha": "right"} if rotated else {}
    axes.set_xticks(shown, [labels[position][-24:] for position in shown], **rotation)


def _plain(axis: Any) -> None:
    # Plain numbers such as 20 and 50: powers of ten would be set as formulas.
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())

"""Spectra of an update, and how it grew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from maskreg.report.geometry import Beside, Geometry, Trajectory
from maskreg.report.theme import Theme, in_percent

WIDTH = 9.0
_MOST_LABELS = 14


def spectra(found: Geometry, theme: Theme) -> Figure:
    """Left, how much of the update's energy few directions hold; right, its stable rank by layer; beside rounding."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    energies = found.energies
    _pair(left, [str(k) for k in energies], list(energies.values()), theme)
    left.set_ylim(-0.03, 1.03)
    left.yaxis.set_major_formatter(FuncFormatter(in_percent))
    left.set_xlabel("largest singular directions")
    left.set_ylabel("share of the update's energy")
    left.legend(loc="upper left")
    _pair(right, list(found.layers), list(found.layers.values()), theme)
    right.set_yscale("log")
    _plain(right.yaxis)
    right.set_xlabel("layer")
    right.set_ylabel("stable rank")
    return figure


def path(found: Trajectory, theme: Theme) -> Figure:
    """Four panels over the checkpoints of a run: density, norm, stable rank, similarity to the final update."""
    figure = Figure(figsize=(WIDTH, 5.2), layout="constrained")
    (one, two), (three, four) = figure.subplots(2, 2, sharex=True)
    points = found.points
    _series(one, [p.density for p in points], theme.observed, "o", "-", "since the source")
    _series(one, [p.step_density for p in points], theme.limit, "s", ":", "since the checkpoint before")
    one.set_ylabel("density")
    one.legend(loc="best")
    _series(two, [p.relative_norm for p in points], theme.observed, "o", "-", "")
    two.set_ylabel("norm of the update / of the source")
    _series(three, [p.stable_rank for p in points], theme.observed, "o", "-", "")
    three.set_ylabel("mean stable rank")
    _series(four, [p.similarity_to_final for p in points], theme.observed, "o", "-", f"top {found.k} directions")
    if found.similarity_by_chance is not None:
        four.axhline(found.similarity_by_chance, color=theme.null, linestyle="--", linewidth=1.4, label="by chance")
    four.set_ylim(-0.03, 1.03)
    four.set_ylabel("similarity to the final update")
    four.legend(loc="best")
    for axes in (one, two, three, four):
        axes.grid(axis="y", linewidth=0.7)
        if axes is not four:
            axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    for axes in (one, four):
        axes.yaxis.set_major_formatter(FuncFormatter(in_percent))
    for axes in (three, four):
        _label(axes, [p.name for p in points], turned=True)
    return figure


def _pair(axes: Any, labels: Sequence[str], values: Sequence[Beside], theme: Theme) -> None:
    _series(axes, [b.value for b in values], theme.observed, "o", "-", "this update")
    _series(axes, [b.null for b in values], theme.null, "s", "--", "rounding alone")
    _label(axes, labels)
    axes.grid(axis="y", linewidth=0.7)


def _series(axes: Any, values: Sequence[float | None], color: str, mark: str, form: str, label: str) -> None:
    there = [(place, value) for place, value in enumerate(values) if value is not None]
    if there:
        x, y = zip(*there, strict=True)
        axes.plot(x, y, color=color, marker=mark, linestyle=form, markersize=4.5, linewidth=1.7, label=label or None)


def _label(axes: Any, labels: Sequence[str], *, turned: bool = False) -> None:
    step = max(1, -(-len(labels) // _MOST_LABELS))
    places = range(0, len(labels), step)
    turn: dict[str, Any] = {"rotation": 30, "ha": "right"} if turned else {}
    axes.set_xticks(places, [labels[place][-24:] for place in places], **turn)


def _plain(axis: Any) -> None:
    # 20 and 50, not powers of ten, which would be written as formulas.
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())

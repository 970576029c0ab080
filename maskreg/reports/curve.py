"""Plot of density by magnitude, with the rounding null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from maskreg.flow.geometry.exponents import BIAS, ByExponent
from maskreg.reports.geometry import Geometry, Summary, Trajectory
from maskreg.reports.theme import WIDE, Size, Theme, in_percent, in_points

_MOST_LABELS = 14


def spectra(geometry: Geometry, theme: Theme, size: Size = WIDE) -> Figure:
    """The share of the update's energy in its largest directions, and stable rank by layer; each with the null."""
    figure = Figure(figsize=(size.width, 5.8 if size.narrow else 3.4), layout="constrained")
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


def growth(trajectory: Trajectory, theme: Theme, size: Size = WIDE) -> Figure:
    """Four panels over the checkpoints of a run: density, norm, stable rank, similarity to the final update."""
    figure = Figure(figsize=(size.width, 9.0 if size.narrow else 5.2), layout="constrained")
    rows, columns = (4, 1) if size.narrow else (2, 2)
    density, norm, rank, similarity = figure.subplots(rows, columns, sharex=True).flat
    points = trajectory.checkpoints
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


FEWEST = 1e-4
"""Smallest share of the weights for an exponent to be shown: densities of a handful of weights are noise."""

APART = 2
"""Powers of two between the place of zero weights and the smallest magnitude."""

_SPECIAL = 255


@dataclass(frozen=True)
class Shown:
    """What the plot shows, from left to right.

    Attributes:
        fields: exponent fields; 0, which holds zeros and subnormal numbers, comes first where there is any.
        places: where each is drawn: powers of two, and left of them, apart, the place of zero weights.
        zeros: whether the first field holds zero weights.
    """

    fields: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    zeros: bool


def shown(exponents: ByExponent) -> Shown:
    """All exponents between the first and the last that are common, and apart from them the zero weights."""
    members = exponents.members
    normal = np.arange(1, _SPECIAL)
    common = normal[members[normal] >= max(1.0, FEWEST * float(members.sum()))]
    fields = np.arange(common[0], common[-1] + 1) if common.size else common
    fields = fields[members[fields] > 0]
    places = fields - BIAS
    if not members[0]:
        return Shown(fields, places, zeros=False)
    left = int(places[0]) - APART if places.size else -BIAS
    return Shown(np.append(0, fields), np.append(left, places), zeros=True)


def curve(exponents: ByExponent, theme: Theme, size: Size = WIDE) -> Figure:
    """Panels over the magnitudes: density, difference from the rounding null, share of all weights."""
    view = shown(exponents)
    members = exponents.members[view.fields]
    density = exponents.moved[view.fields] / members
    expected = None if exponents.expected is None else exponents.expected[view.fields] / members
    heights = [2.6 if size.narrow else 3.0, 1.3, 1.0]
    if expected is None:
        del heights[1]
    figure = Figure(figsize=(size.width, 1.2 + sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    above, below = panels[0], panels[-1]
    _line(above, view, density, label="this mask", color=theme.observed, marker="o")
    if expected is not None:
        null = "rounding alone" if size.narrow else "rounding alone, as many moved in each tensor"
        _line(above, view, expected, label=null, color=theme.null, marker="s", linestyle="--")
        panels[1].bar(view.places, density - expected, width=0.7, color=theme.observed)
        panels[1].axhline(0, color=theme.null, linewidth=1.4, linestyle="--")
        panels[1].set_ylabel("difference,\npoints")
    above.set_ylim(-0.03, 1.03)
    above.set_ylabel("density")
    above.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    below.bar(view.places, members / exponents.members.sum(), width=0.7, color=theme.neutral)
    below.set_ylabel("weights")
    next_power = "" if size.narrow else ", from this power of two to the next"
    below.set_xlabel(f"magnitude of the source weight (log scale){next_power}")
    _ticks(below, view, most=6 if size.narrow else 14)
    for axes in panels:
        difference = expected is not None and axes is panels[1]
        axes.yaxis.set_major_formatter(FuncFormatter(in_points if difference else in_percent))
        axes.grid(axis="y", linewidth=0.7)
        axes.set_axisbelow(True)
        if view.zeros and len(view.places) > 1:
            axes.axvline(view.places[1] - APART / 2, color=theme.neutral, linewidth=0.9, linestyle=(0, (1, 2)))
    figure.align_ylabels()
    return figure


RAISED = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
"""The minus sign and digits of exponents."""


def name_of(field: int, place: int) -> str:
    """The magnitudes of an exponent field in words: ``zero``, or ``2⁻⁸ to 2⁻⁷``."""
    return f"{_power(place)} to {_power(place + 1)}" if field else "zero"


def _power(exponent: int) -> str:
    return "2" + str(exponent).translate(str.maketrans("-0123456789", RAISED))


def _line(axes: Any, view: Shown, values: npt.NDArray[np.float64], **look: Any) -> None:
    look = {"markersize": 4.5, "linewidth": 1.7, **look}
    axes.plot(view.places[view.zeros :], values[view.zeros :], **look)
    if view.zeros:
        # No line leads to zero: there is no power of two between.
        axes.plot(view.places[:1], values[:1], **{**look, "label": None, "linestyle": "none"})


def _ticks(axes: Any, view: Shown, most: int) -> None:
    powers = view.places[view.zeros :]
    labels = {int(view.places[0]): "zero"} if view.zeros else {}
    if powers.size:
        first, last = int(powers[0]), int(powers[-1])
        stride = -(-(last - first + 1) // most)
        labels |= {power: _power(power) for power in range(last, first - 1, -stride)}
    axes.set_xticks(list(labels), list(labels.values()))

"""Bars of the overlap of two masks, with every null's expectation and the maximum."""

from __future__ import annotations

from typing import Any

from matplotlib.ticker import FuncFormatter

from maskreg.analysis.evidence import OverlapFigures
from maskreg.analysis.verdict import null_label
from maskreg.reports.drawing import Drawing
from maskreg.reports.theme import WIDE, Size, Theme, in_percent
from maskreg.words import percent


def overlap_bars(figures: OverlapFigures, theme: Theme, size: Size = WIDE) -> Drawing:
    """One bar for the observed overlap and one for each defined null, as shares of the smaller mask.

    The full width is the maximum: the smaller mask lies in the larger. The shares stand in a column of their own, where
    no bar and no line crosses them.
    """
    most = figures.counts.most
    nulls = [(null_label(null), over.expected) for null, over in figures.nulls.items() if over.expected is not None]
    rows = [("observed", figures.counts.both / most), *((label, expected / most) for label, expected in nulls)]
    figure = Drawing(figsize=(size.width, 1.1 + (0.46 if size.narrow else 0.34) * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    positions = range(len(rows))
    colors = [theme.observed, *[theme.null if "rounding" in label else theme.neutral for label, _ in rows[1:]]]
    axes.barh(positions, [share for _, share in rows], color=colors, height=0.36 if size.narrow else 0.66)
    axes.vlines(rows[0][1], -0.5, len(rows), colors=theme.observed, linewidth=1.1, linestyle=":", zorder=3)
    axes.axvline(1, color=theme.limit, linewidth=1.4, linestyle="--", zorder=3)
    axes.annotate("maximum", (1, -0.62), (-4, 0), textcoords="offset points", ha="right", va="bottom")
    for position, (label, share) in enumerate(rows):
        _beside(axes, percent(share), (1.02, position))
        if size.narrow:
            # A label beside its bar would leave no room for the bar.
            axes.annotate(label, (0, position - 0.22), (3, 0), textcoords="offset points", ha="left", va="bottom")
    axes.set_yticks(positions, ["" if size.narrow else label for label, _ in rows])
    axes.set_ylim(len(rows) - 0.45, -1.15)
    axes.set_xlim(0, 1.005)
    axes.xaxis.set_major_formatter(FuncFormatter(in_percent))
    axes.set_xlabel("share of the smaller mask that lies in both")
    axes.tick_params(axis="y", length=0)
    return figure


def _beside(axes: Any, text: str, place: tuple[float, float]) -> None:
    axes.annotate(text, place, xycoords=("axes fraction", "data"), ha="left", va="center", annotation_clip=False)

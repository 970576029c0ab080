"""Bars of the overlap of two masks, with every null's expectation and the maximum."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from maskreg.analysis.evidence import OverlapFigures
from maskreg.analysis.verdict import null_label
from maskreg.reports.theme import Theme, in_percent

WIDTH = 9.0


def overlap_bars(figures: OverlapFigures, theme: Theme) -> Figure:
    """One bar for the observed overlap and one for each defined null, as shares of the smaller mask.

    The full width is the maximum: the smaller mask lies in the larger.
    """
    most = figures.counts.most
    nulls = [(null_label(null), over.expected) for null, over in figures.nulls.items() if over.expected is not None]
    rows = [("observed", figures.counts.both / most), *((label, expected / most) for label, expected in nulls)]
    figure = Figure(figsize=(WIDTH, 1.1 + 0.34 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    positions = range(len(rows))
    colors = [theme.observed, *[theme.null if "rounding" in label else theme.neutral for label, _ in rows[1:]]]
    axes.barh(positions, [share for _, share in rows], color=colors, height=0.66)
    axes.axvline(rows[0][1], color=theme.observed, linewidth=1.1, linestyle=":", zorder=3)
    axes.axvline(1, color=theme.limit, linewidth=1.4, linestyle="--", zorder=3)
    axes.annotate("maximum", (1, -0.62), (-4, 0), textcoords="offset points", ha="right", va="bottom", fontsize=8.5)
    for position, (_, share) in enumerate(rows):
        backing = {"facecolor": theme.ground, "edgecolor": "none", "pad": 0.6}
        axes.annotate(
            f"{100 * share:.1f} %",
            (share, position),
            (5, 0) if share < 0.9 else (-5, 0),
            textcoords="offset points",
            ha="left" if share < 0.9 else "right",
            va="center",
            fontsize=8.5,
            bbox=backing,
            zorder=4,
        )
    axes.set_yticks(positions, [label for label, _ in rows])
    axes.set_ylim(len(rows) - 0.45, -1.15)
    axes.set_xlim(0, 1.005)
    axes.xaxis.set_major_formatter(FuncFormatter(in_percent))
    axes.set_xlabel("of the smaller mask lies in the other one")
    axes.tick_params(axis="y", length=0)
    return figure

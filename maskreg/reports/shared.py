"""Plots of what masks share, for papers and slides: on a page, they are elements in its own type."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from maskreg.analysis.comparison import Intersection, PairOverlap
from maskreg.analysis.verdict import null_label
from maskreg.reports.ladder import ends_of, rungs
from maskreg.reports.theme import WIDE, Size, Theme, in_percent
from maskreg.reports.upset import LETTERS, bars_of, sizes_of
from maskreg.words import percent


def overlap(names: Sequence[str], pair: PairOverlap, theme: Theme, size: Size = WIDE) -> Figure:
    """The null ladder; ``names``: of both masks."""
    steps, observed = rungs(pair), pair.whole.counts.both / pair.whole.counts.most
    figure = Figure(figsize=(size.width, 1.2 + 0.36 * len(steps)), layout="constrained")
    axes = figure.add_subplot()
    for y, rung in enumerate(steps):
        color = theme.null if rung.decides else theme.neutral
        axes.hlines(y, rung.share, rung.explained, theme.null, linewidth=5, alpha=0.35)
        axes.hlines(y, rung.low, rung.high, color, linewidth=5)
        face = color if rung.decides else theme.ground
        axes.plot(rung.share, y, "o", color=color, markerfacecolor=face, clip_on=False)
    axes.axvline(observed, color=theme.observed, clip_on=False)
    low, high = ends_of(steps, observed)
    side, above = "right" if observed > low + 0.8 * (high - low) else "center", axes.get_xaxis_transform()
    seen = f"observed {percent(observed)}"
    axes.text(observed, 1.02, seen, color=theme.observed, fontweight="bold", ha=side, transform=above)
    axes.set_yticks(range(len(steps)), [f"{null_label(rung.null)} {percent(rung.share)}" for rung in steps])
    for label, rung in zip(axes.get_yticklabels(), steps, strict=True):
        label.set_fontweight("bold" if rung.decides else "normal")
    axes.set_xlim(low, high)
    axes.set_ylim(len(steps) - 0.5, -0.5)
    axes.grid(axis="y", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(FuncFormatter(in_percent))
    axes.set_xlabel("share of the smaller mask that lies in both")
    _name(figure, names)
    return figure


def intersections(names: Sequence[str], found: Sequence[Intersection], theme: Theme, size: Size = WIDE) -> Figure:
    """The UpSet plot; ``names``: of the masks."""
    union, bars, sizes = sum(each.coordinates for each in found), bars_of(found), sizes_of(found)
    masks, height = range(len(sizes)), 0.26 * len(sizes)
    figure = Figure(figsize=(size.width, 2.4 + height + 0.16 * len(names)), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row", width_ratios=(1, 4), height_ratios=(2, height))
    (corner, above), (left, below) = panels
    for x, each in enumerate(bars):
        share, chance = each.coordinates / union, each.expected / union
        above.bar(x, share, width=0.66, color=theme.observed)
        above.text(x, max(share, chance), percent(share), ha="center", va="bottom")
        if each.masks:
            above.hlines(chance, x - 0.33, x + 0.33, theme.null, linewidth=2)
            below.vlines(x, each.masks[0], each.masks[-1], theme.ink)
            below.plot([x] * len(masks), masks, "o", color=theme.neutral, markerfacecolor=theme.ground)
            below.plot([x] * len(each.masks), each.masks, "o", color=theme.ink)
        else:
            below.text(x, masks[-1] / 2, "others", ha="center", va="center")
    left.bar_label(
        left.barh(masks, [-size / union for size in sizes], height=0.5, color=theme.neutral),
        [percent(size / union) for size in sizes],
        padding=4,
    )
    for mask in masks:
        left.annotate(LETTERS[mask], (0, mask), (5, 0), textcoords="offset points", va="center")
    left.set_xlim(-1.5 * max(sizes) / union, 0)
    left.set_ylim(masks[-1] + 0.5, -0.5)
    left.set_title("in each mask", fontsize=9, loc="right")
    for axes in (corner, above, left, below):
        axes.set_axis_off()
    _name(figure, names)
    return figure


def _name(figure: Figure, names: Sequence[str]) -> None:
    figure.supxlabel("\n".join(map(" ".join, zip(LETTERS, names, strict=False))), x=0.01, ha="left", fontsize=9)

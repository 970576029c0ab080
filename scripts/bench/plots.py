"""The benchmark's plots: SVG, the same bytes for the same figures, in colors safe for color-blind readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from scripts.bench.figures import Coding, Pair
from scripts.themes import with_both_themes

DEFAULT, OURS, PEER, LIMIT = "#0072B2", "#56B4E9", "#B8B8B8", "#D55E00"
"""Colors (Okabe and Ito): maskreg's default codec, its other codecs, other tools, the entropy limit."""

INK, GROUND, GRID = "#1F2328", "#FFFFFF", "#E5E5E5"
"""Colors of text and axes, of the background, and of the grid."""

DARK = {
    INK: "#e6e9ed",
    GROUND: "#14181d",
    GRID: "#39414b",
    DEFAULT: "#3d9be0",
    PEER: "#626e7a",
    LIMIT: "#ff8a3d",
    "#999999": "#8c959f",
    "#444444": "#c8ced6",
    "#8B5A2B": "#b98a5a",
    "#9A9A9A": "#7d8794",
    "#C4C4C4": "#58626d",
    "#EFEFEF": "#39414b",
}
"""Colors that a dark page replaces; the others are seen on both."""

PEER_MARKS = (
    ("o", "#E69F00"),
    ("s", "#009E73"),
    ("^", "#CC79A7"),
    ("v", "#56B4E9"),
    ("D", "#999999"),
    ("P", "#8B5A2B"),
    ("X", "#444444"),
)
"""Marker and color of each peer in turn; markers alone distinguish them."""

WIDTH = 9.0
"""Width of the plots in inches, about as a README shows them."""

CUT = 2.5
"""Bars are cut off at this multiple of the median; their value is written beside them."""

STYLE = {
    "svg.hashsalt": "maskreg",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": 9,
    "figure.facecolor": GROUND,
    "axes.facecolor": GROUND,
    "savefig.facecolor": GROUND,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(pairs: Sequence[Pair], default: str, folder: Path, description: str) -> None:
    """Write ``codec-size.svg`` and ``codec-speed.svg``, with what they come from in their metadata."""
    with mpl.rc_context(STYLE):
        for name, figure in (("codec-size", size(pairs, default)), ("codec-speed", speed(pairs, default))):
            save(figure, folder / f"{name}.svg", description)


def save(figure: Figure, path: Path, description: str) -> None:
    """Write SVG that follows the reader's color scheme."""
    figure.savefig(path, metadata={"Date": None, "Description": description})
    # Matplotlib leaves trailing spaces.
    drawn = "\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n"
    path.write_text(with_both_themes(drawn, {color.lower(): counterpart for color, counterpart in DARK.items()}))


def size(pairs: Sequence[Pair], default: str) -> Figure:
    """Bits per parameter: a panel for each pair, a bar for each codec, the limit as a line."""
    bars = max(len(_shown(pair)) for pair in pairs)
    figure, panels = _panels(pairs, 0.9 + 0.24 * bars)
    for panel, pair in zip(panels, pairs, strict=False):
        rows = _shown(pair)
        values = [pair.bits(row) for row in rows]
        cut = CUT * median(values)
        panel.barh(range(len(rows)), values, color=[_color(row, default) for row in rows], height=0.72)
        panel.axvline(pair.limits.step, color=LIMIT, linestyle="--", linewidth=1.4, zorder=3)
        for y, value in enumerate(values):
            text = f"{value:.2f}" if value >= 1 else f"{value:.3f}"
            text, end = (text, value) if value <= cut else (f"{text} →", cut)
            backed = {"facecolor": GROUND, "edgecolor": "none", "pad": 0.8}
            panel.annotate(
                text,
                (end, y),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                bbox=backed,
                zorder=4,
            )
        panel.set_yticks(range(len(rows)), [row.codec for row in rows])
        panel.invert_yaxis()
        panel.set_xlim(0, 1.16 * max(min(cut, max(values)), pair.limits.step))
        panel.set_xlabel("bits per parameter")
        panel.tick_params(axis="y", length=0)
    handles = [mpl.patches.Patch(color=DEFAULT, label="maskreg's codec")]
    handles.append(mpl.patches.Patch(color=PEER, label="other tools"))
    line = mpl.lines.Line2D([], [], color=LIMIT, linestyle="--", label="entropy of the steps, given the exponents")
    figure.legend(handles=[*handles, line], loc="outside lower center", ncols=4, frameon=False)
    return figure


def speed(pairs: Sequence[Pair], default: str) -> Figure:
    """Decoding speed of one thread against bits per parameter: a panel for each pair, a marker for each codec."""
    figure, panels = _panels(pairs, 2.5)
    peers = sorted({row.codec for pair in pairs for row in _shown(pair) if not row.ours})
    marks = {name: PEER_MARKS[i % len(PEER_MARKS)] for i, name in enumerate(peers)}
    seen: dict[str, Any] = {}
    rates = [_rate(pair, row) for pair in pairs for row in _shown(pair)]
    for panel, pair in zip(panels, pairs, strict=False):
        for row in _shown(pair):
            form, color = marks.get(row.codec, ("*", _color(row, default)))
            seen[row.codec] = panel.scatter(
                pair.bits(row), _rate(pair, row), marker=form, color=color, s=150 if row.ours else 42, zorder=3
            )
        panel.axvline(pair.limits.step, color=LIMIT, linestyle="--", linewidth=1.4)
        panel.set(xscale="log", yscale="log", xlabel="bits per parameter", ylabel="decode GB/s")
        panel.set_ylim(0.8 * min(rates), 1.25 * max(rates))
        low, high = panel.get_xlim()
        panel.set_xlim(low / 1.05, high * 1.05)
        few, many = (1, 2, 5), (1, 1.5, 2, 3, 5, 8)
        for axis, subs in ((panel.xaxis, few if high > 8 * low else many), (panel.yaxis, few)):
            axis.set_major_locator(mpl.ticker.LogLocator(subs=subs))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_locator(mpl.ticker.NullLocator())
        panel.grid(color=GRID, linewidth=0.7)
    handles = [*seen.values(), mpl.lines.Line2D([], [], color=LIMIT, linestyle="--")]
    labels = [*seen, "entropy given exponents"]
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _panels(pairs: Sequence[Pair], height: float) -> tuple[Figure, list[Any]]:
    columns = min(2, len(pairs))
    lines = math.ceil(len(pairs) / columns)
    figure = Figure(figsize=(WIDTH, 0.6 + lines * height), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for panel in panels[len(pairs) :]:
        panel.set_visible(False)
    for panel, pair in zip(panels, pairs, strict=False):
        panel.set_title(f"{pair.name}: {100 * pair.density:.3g} % changed", loc="left", fontsize=10, weight="bold")
    return figure, panels


def _shown(pair: Pair) -> list[Coding]:
    rows = [row for row in pair.codings if row.threads == 1 and not row.kernels and not row.missing]
    return sorted(rows, key=lambda row: row.bytes)


def _rate(pair: Pair, row: Coding) -> float:
    assert row.decode
    return pair.rate(row.decode)


def _color(row: Coding, default: str) -> str:
    return DEFAULT if row.codec == default else OURS if row.ours else PEER

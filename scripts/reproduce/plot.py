"""The plot: every arm's share of the full arm's gain with its interval, beside how many coordinates it changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from maskreg.reports.theme import LIGHT, style
from scripts.reproduce.arms import FULL
from scripts.reproduce.statistics import Estimate, Results
from scripts.themes import COUNTERPARTS, with_both_themes

INK, FAINT, MARK, SECOND = LIGHT.ink, LIGHT.faint, LIGHT.observed, LIGHT.null

STYLE = {**style(LIGHT, "maskreg"), "axes.edgecolor": INK, "axes.spines.left": False}


def draw(results: Mapping[str, Results], path: Path) -> None:
    """Write an SVG that follows the reader's color scheme; the same bytes for the same results."""
    with mpl.rc_context(STYLE):
        figure = _figure(results)
        figure.savefig(path, format="svg", metadata={"Date": None})
    lines = [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text(with_both_themes("\n".join(lines) + "\n", COUNTERPARTS), encoding="utf-8")


def _figure(results: Mapping[str, Results]) -> Figure:
    arms = {name: [arm for arm in one.runs if arm != FULL] for name, one in results.items()}
    counts = [len(rows) for rows in arms.values()]
    figure = Figure(figsize=(9.6, 0.26 * sum(counts) + 0.75 * len(counts)), layout="constrained")
    grid = {"width_ratios": [2, 1], "height_ratios": counts}
    panels: Any = figure.subplots(len(counts), 2, sharey="row", squeeze=False, gridspec_kw=grid)
    for (share, visible), (name, one) in zip(panels, results.items(), strict=True):
        for y, arm in enumerate(arms[name]):
            color = SECOND if one.family.arms()[arm].control else MARK
            _point(share, y, Estimate.of(one.shares(arm)), color)
            _point(visible, y, Estimate(100 * one.average(arm, "visible")), color)
        _frame(share, f"{name}: share of the full run's gain, %", line=100)
        _frame(visible, "changed visibly, % (line: full)", line=100 * one.average(FULL, "visible"))
        share.set_yticks(range(len(arms[name])), arms[name])
        share.set_ylim(len(arms[name]) - 0.5, -0.5)
    return figure


def _point(panel: Any, y: int, estimate: Estimate, color: str) -> None:
    if estimate.half is not None:
        ends = [estimate.mean - estimate.half, estimate.mean + estimate.half]
        panel.plot(ends, [y, y], color=color, linewidth=1.6, solid_capstyle="butt")
    panel.plot([estimate.mean], [y], "o", color=color, markersize=5)


def _frame(panel: Any, label: str, *, line: float) -> None:
    panel.axvline(line, color=INK, linewidth=0.9)
    panel.grid(axis="x", color=FAINT, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel(label)
    panel.locator_params(axis="x", nbins=5)

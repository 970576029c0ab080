"""The plot: every arm minus the full one with intervals, beside how many coordinates it changes visibly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from maskreg.reports.theme import LIGHT, style
from scripts.reproduce.arms import ARMS
from scripts.reproduce.statistics import Estimate, Results
from scripts.themes import COUNTERPARTS, with_both_themes

INK, FAINT, MARK, SECOND = LIGHT.ink, LIGHT.faint, LIGHT.observed, LIGHT.null

STYLE = {**style(LIGHT, "maskreg"), "axes.edgecolor": INK, "axes.spines.left": False}


def draw(results: Results, path: Path) -> None:
    """Write an SVG that follows the reader's color scheme; the same bytes for the same results."""
    with mpl.rc_context(STYLE):
        figure = _figure(results)
        figure.savefig(path, format="svg", metadata={"Date": None})
    lines = [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text(with_both_themes("\n".join(lines) + "\n", COUNTERPARTS), encoding="utf-8")


def _figure(results: Results) -> Figure:
    arms = [arm for arm in results.runs if arm != "full"]
    figure = Figure(figsize=(9.6, 1.15 + 0.3 * len(arms)), layout="constrained")
    panels: Any = figure.subplots(1, 3, sharey=True, gridspec_kw={"width_ratios": [1.25, 1.25, 0.9]})
    for panel, endpoint, label in (
        (panels[0], "kl", "held-out KL to the teacher,\narm - full (left is better)"),
        (panels[1], "p", "P(right answer), held out,\narm - full (right is better)"),
    ):
        for y, arm in enumerate(arms):
            _point(panel, y, results.difference(arm, "full", endpoint), _color(arm))
        _frame(panel, label, line=0.0)
    for y, arm in enumerate(arms):
        _point(panels[2], y, Estimate(100 * results.average(arm, "visible_density")), _color(arm))
    full = 100 * results.average("full", "visible_density")
    _frame(panels[2], "changed visibly, % of\ncoordinates (line: full)", line=full)
    panels[0].set_yticks(range(len(arms)), arms)
    panels[0].set_ylim(len(arms) - 0.5, -0.5)
    return figure


def _point(panel: Any, y: int, estimate: Estimate, color: str) -> None:
    if estimate.half is not None:
        ends = [estimate.mean - estimate.half, estimate.mean + estimate.half]
        panel.plot(ends, [y, y], color=color, linewidth=1.6, solid_capstyle="butt")
    panel.plot([estimate.mean], [y], "o", color=color, markersize=5)


def _color(arm: str) -> str:
    """Masks that a run gave, and controls."""
    return SECOND if ARMS[arm].control else MARK


def _frame(panel: Any, label: str, *, line: float) -> None:
    panel.axvline(line, color=INK, linewidth=0.9)
    panel.grid(axis="x", color=FAINT, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel(label)
    panel.locator_params(axis="x", nbins=5)

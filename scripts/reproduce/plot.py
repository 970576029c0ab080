"""The plot: every arm minus the full one with intervals, beside published results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from maskreg.reports.theme import LIGHT, style
from scripts.reproduce.statistics import Estimate, Results
from scripts.reproduce.table import PUBLISHED
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
            estimate = results.difference(arm, "full", endpoint)
            _point(panel, y, estimate, SECOND if arm.startswith("SGD") else MARK)
        _frame(panel, label)
    for y, arm in enumerate(arms):
        if arm in PUBLISHED:
            _point(panels[2], y, Estimate(PUBLISHED[arm] - PUBLISHED["full"], None), INK)
    _frame(panels[2], "published: AIME24/25 in points,\narm - full (one run each)")
    panels[0].set_yticks(range(len(arms)), arms)
    panels[0].set_ylim(len(arms) - 0.5, -0.5)
    return figure


def _point(panel: Any, y: int, estimate: Estimate, color: str) -> None:
    if estimate.half is not None:
        ends = [estimate.mean - estimate.half, estimate.mean + estimate.half]
        panel.plot(ends, [y, y], color=color, linewidth=1.6, solid_capstyle="butt")
    panel.plot([estimate.mean], [y], "o", color=color, markersize=5)


def _frame(panel: Any, label: str) -> None:
    panel.axvline(0, color=INK, linewidth=0.9)
    panel.grid(axis="x", color=FAINT, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel(label)
    panel.locator_params(axis="x", nbins=5)

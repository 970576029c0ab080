"""The plot: every arm's share of the full arm's gain with its interval, and its share of the visibly changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from maskreg.reports.theme import LIGHT, style
from scripts.reproduce.arms import DIRECTIONS, FULL
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
    """A column for each family, a row for each arm that any has."""
    named = {name: {_row(one, arm): arm for arm in one.runs if arm != FULL} for name, one in results.items()}
    rows = [*dict.fromkeys(row for arms in named.values() for row in arms)]
    figure = Figure(figsize=(9.6, 0.25 * len(rows) + 1), layout="constrained")
    panels: Any = figure.subplots(1, len(results), sharex=True, sharey=True, squeeze=False)[0]
    for panel, (name, one) in zip(panels, results.items(), strict=True):
        for row, arm in named[name].items():
            control = one.family.arms()[arm].control not in ("", DIRECTIONS)
            _arm(panel, rows.index(row), one, arm, SECOND if control else MARK)
        panel.set_title(name, fontsize="medium")
        panel.axvline(100, color=INK, linewidth=0.9)
        panel.grid(color=FAINT, linewidth=0.7)
        panel.set_axisbelow(True)
        panel.tick_params(axis="y", length=0)
        panel.locator_params(axis="x", nbins=5)
    panels[0].set_yticks(range(len(rows)), rows)
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.supxlabel(
        "% of the full run: gain (filled, with interval), coordinates that change visibly (hollow)", fontsize="medium"
    )
    return figure


def _row(results: Results, arm: str) -> str:
    """The label of an arm; the same for the own masks of all families."""
    own = results.family.mask
    return "mask of another run" if arm == own else arm.removeprefix(f"{own}: ")


def _arm(panel: Any, y: int, results: Results, arm: str, color: str) -> None:
    gain = Estimate.of(results.shares(arm))
    visible = 100 * results.average(arm, "visible") / results.average(FULL, "visible")
    panel.plot([visible], [y], "o", color=color, markerfacecolor="none", markersize=5)
    if gain.half is not None:
        ends = [gain.mean - gain.half, gain.mean + gain.half]
        panel.plot(ends, [y, y], color=color, linewidth=1.6, solid_capstyle="butt")
    panel.plot([gain.mean], [y], "o", color=color, markersize=5)

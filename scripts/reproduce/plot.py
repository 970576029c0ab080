"""The picture: every arm minus the full one, with intervals, beside what was published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from maskreg.reports.theme import DARK, LIGHT, style
from scripts.reproduce.statistics import Estimate, Results
from scripts.reproduce.table import PUBLISHED

INK, FAINT, GROUND, MARK, OTHER = LIGHT.ink, LIGHT.faint, LIGHT.ground, LIGHT.observed, LIGHT.null
NIGHT = {INK: DARK.ink, FAINT: DARK.faint, GROUND: DARK.ground, MARK: DARK.observed, OTHER: DARK.null}
"""Colors of the picture by day, and what they are by night."""

STYLE = {**style(LIGHT, "maskreg"), "axes.edgecolor": INK, "axes.spines.left": False}


def draw(results: Results, path: Path) -> None:
    """Write the picture as SVG that follows the reader's color scheme; the same bytes for the same results."""
    with mpl.rc_context(STYLE):
        figure = _figure(results)
        figure.savefig(path, format="svg", metadata={"Date": None})
    lines = [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text(_with_night("\n".join(lines) + "\n"), encoding="utf-8")


def _figure(results: Results) -> Figure:
    arms = [arm for arm in results.runs if arm != "full"]
    figure = Figure(figsize=(9.6, 1.15 + 0.3 * len(arms)), layout="constrained")
    panels: Any = figure.subplots(1, 3, sharey=True, gridspec_kw={"width_ratios": [1.25, 1.25, 0.9]})
    for panel, endpoint, label in (
        (panels[0], "kl", "held-out KL to the teacher,\narm - full (left is better)"),
        (panels[1], "p", "P(right answer), held out,\narm - full (right is better)"),
    ):
        for place, arm in enumerate(arms):
            estimate = results.difference(arm, "full", endpoint)
            _point(panel, place, estimate, OTHER if arm.startswith("SGD") else MARK)
        _frame(panel, label)
    for place, arm in enumerate(arms):
        if arm in PUBLISHED:
            _point(panels[2], place, Estimate(PUBLISHED[arm] - PUBLISHED["full"], None), INK)
    _frame(panels[2], "published: AIME24/25 in points,\narm - full (one run each)")
    panels[0].set_yticks(range(len(arms)), arms)
    panels[0].set_ylim(len(arms) - 0.5, -0.5)
    return figure


def _point(panel: Any, place: int, estimate: Estimate, color: str) -> None:
    if estimate.half is not None:
        ends = [estimate.mean - estimate.half, estimate.mean + estimate.half]
        panel.plot(ends, [place, place], color=color, linewidth=1.6, solid_capstyle="butt")
    panel.plot([estimate.mean], [place], "o", color=color, markersize=5)


def _frame(panel: Any, label: str) -> None:
    panel.axvline(0, color=INK, linewidth=0.9)
    panel.grid(axis="x", color=FAINT, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel(label)
    panel.locator_params(axis="x", nbins=5)


def _with_night(svg: str) -> str:
    """Colors as variables, which a style sheet sets for day and night."""
    names = {color: f"--c{number}" for number, color in enumerate(NIGHT)}
    for color, name in names.items():
        svg = svg.replace(color, f"var({name})")
    day = " ".join(f"{name}: {color};" for color, name in names.items())
    night = " ".join(f"{names[color]}: {other};" for color, other in NIGHT.items())
    style = f"<style>svg {{ {day} }} @media (prefers-color-scheme: dark) {{ svg {{ {night} }} }}</style>"
    head, tag, rest = svg.partition("<defs>")
    return f"{head}{style}\n {tag}{rest}"

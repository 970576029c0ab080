"""Plots of the documentation, each in one SVG for both themes: a browser chooses by the page around it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from maskreg.reports.theme import DARK, LIGHT, VARIABLES

COUNTERPARTS = {getattr(LIGHT, name): getattr(DARK, name) for name in VARIABLES}
"""Colors of the reports by day, and by night."""


def with_both_themes(svg: str, counterparts: Mapping[str, str]) -> str:
    """An SVG whose colors follow the reader's color scheme.

    Example: ``fill: #0072b2`` becomes ``fill: var(--c0)``, which is ``#0072b2`` by day and ``#56b4e9`` by night.
    """
    names = {color: f"--c{number}" for number, color in enumerate(counterparts)}
    colors = re.compile("|".join(map(re.escape, names)), re.IGNORECASE)
    # Only tags have colors: what a text says stays.
    drawn = re.sub(r"<[^>]*>", lambda tag: colors.sub(lambda match: f"var({names[match[0].lower()]})", tag[0]), svg)
    light = " ".join(f"{name}: {color};" for color, name in names.items())
    dark = " ".join(f"{names[color]}: {counterpart};" for color, counterpart in counterparts.items())
    style = (
        f"<style>svg {{ color-scheme: light dark; {light} }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>"
    )
    head, tag, rest = drawn.partition("<defs>")
    return f"{head}{style}\n {tag}{rest}"

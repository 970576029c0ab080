"""Themes and sizes of the plots: colors that color-blind readers can tell apart, for a laptop and for a phone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from maskreg.extras import requiring


@dataclass(frozen=True)
class Theme:
    """Colors of the plots on one background.

    Attributes:
        observed, null, neutral, limit: series, after Okabe and Ito; markers and line styles differ too.
    """

    name: str
    ground: str
    ink: str
    faint: str
    observed: str
    null: str
    neutral: str
    limit: str
    heat: str


LIGHT = Theme("light", "#ffffff", "#1f2328", "#d8dde3", "#0072b2", "#d55e00", "#8c959f", "#1f2328", "cividis")
DARK = Theme("dark", "#14181d", "#e6e9ed", "#39414b", "#56b4e9", "#e69f00", "#7d8794", "#e6e9ed", "cividis")
THEMES = (LIGHT, DARK)

VARIABLES = ("ground", "ink", "faint", "observed", "null", "neutral")
"""Colors that the page sets for its plots; the limit has the color of ink."""


@dataclass(frozen=True)
class Size:
    """Room for a plot.

    Attributes:
        name: ``wide`` or ``narrow``.
        width: in inches. Text of 9 points is then 13 CSS pixels high on a laptop and 11 on a phone.
    """

    name: str
    width: float

    @property
    def narrow(self) -> bool:
        """Whether panels stand below each other, for a phone."""
        return self.name == "narrow"


WIDE, NARROW = Size("wide", 9.0), Size("narrow", 3.7)
SIZES = (WIDE, NARROW)

FONTS = ["DejaVu Sans", "Verdana", "Arial", "Helvetica", "sans-serif"]


def style(theme: Theme, salt: str) -> dict[str, Any]:
    """Settings for matplotlib."""
    return {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",
        # Tensor names can contain dollar signs, which would begin a formula.
        "text.parse_math": False,
        "font.family": "sans-serif",
        "font.sans-serif": FONTS[:-1],
        "font.size": 9,
        "figure.facecolor": theme.ground,
        "axes.facecolor": theme.ground,
        "savefig.facecolor": theme.ground,
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.edgecolor": theme.neutral,
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
        "grid.color": theme.faint,
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }


def in_percent(share: float, _: int = 0) -> str:
    """A share as an axis label, formatted as in the text of the page."""
    return f"{100 * share:.6g} %".replace("-", "−")


def in_points(difference: float, _: int = 0) -> str:
    """A difference of two shares as an axis label, in percentage points, which the axis names."""
    return f"{100 * difference:.6g}".replace("-", "−")


def colored(svg: str) -> str:
    """An SVG drawn with :data:`LIGHT` whose colors are the page's CSS variables: one picture for both themes.

    Example: ``style="fill: #0072b2"`` becomes ``style="fill: var(--observed)"``.
    """
    colors = {getattr(LIGHT, name): f"var(--{name})" for name in VARIABLES}
    pattern = re.compile("|".join(map(re.escape, colors)))
    return re.sub(r"<[^>]*>", lambda tag: pattern.sub(lambda color: colors[color[0]], tag[0]), svg)


def require_libraries() -> None:
    """Check that the packages for reports are installed."""
    with requiring("a report"):
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401

"""Light and dark themes of the plots, in colors that color-blind readers can tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskreg.extras import requiring


@dataclass(frozen=True)
class Theme:
    """Colors of the plots on one background.

    Attributes:
        name: ``light`` or ``dark``; part of the names of exported files.
        ground: background.
        ink, faint: text, and grid lines.
        observed, null, neutral, limit: series, after Okabe and Ito; markers and line styles differ too.
        heat: name of a perceptually uniform color map.
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

FONTS = ["DejaVu Sans", "Verdana", "Arial", "Helvetica", "sans-serif"]


def style(theme: Theme, salt: str) -> dict[str, Any]:
    """Settings for matplotlib.

    Args:
        theme: the colors.
        salt: seeds the identifiers within an SVG, so that the same plot always gets the same ones.
    """
    return {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",
        # Tensor names may contain dollar signs, which would begin a formula.
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


def require_libraries() -> None:
    """Check that the packages for reports are installed.

    Raises:
        ConfigError: one is missing.
    """
    with requiring("a report"):
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401

"""Plots as pictures: SVG for the page and for papers, PNG for slides; the same bytes for the same figures."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

from maskreg.report.theme import THEMES, Theme, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 200


@dataclass(frozen=True)
class Plot:
    """A plot that can be drawn on any background.

    Attributes:
        name: file name without suffix, and identifier in the page.
        title: one line above it.
        alt: what it shows, for those who cannot see it.
        draw: draws it.
    """

    name: str
    title: str
    alt: str
    draw: Callable[[Theme], Figure]


def svg(plot: Plot, theme: Theme) -> str:
    """A plot as an SVG document."""
    salt = f"maskreg-{plot.name}-{theme.name}"
    buffer = io.StringIO()
    with mpl.rc_context(style(theme, salt)):
        plot.draw(theme).savefig(buffer, format="svg", metadata={"Date": None, "Creator": "maskreg"})
    # Matplotlib leaves spaces at the ends of lines.
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def png(plot: Plot, theme: Theme) -> bytes:
    """A plot as a PNG file."""
    buffer = io.BytesIO()
    with mpl.rc_context(style(theme, f"maskreg-{plot.name}-{theme.name}")):
        plot.draw(theme).savefig(buffer, format="png", dpi=PNG_DPI, metadata={"Software": "maskreg"})
    return buffer.getvalue()


def export(plots: list[Plot], folder: Path) -> list[Path]:
    """Write every plot into a folder: SVG and PNG, light and dark.

    Returns:
        The files, in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for plot in plots:
        for theme in THEMES:
            place = folder / f"{plot.name}-{theme.name}.svg"
            place.write_text(svg(plot, theme), encoding="utf-8")
            drawn = place.with_suffix(".png")
            drawn.write_bytes(png(plot, theme))
            written += [place, drawn]
    return written


def inline(plot: Plot, theme: Theme) -> str:
    """A plot as an element of an HTML page: no prologue, no identifiers but its own, labeled for screen readers."""
    found = re.search(r"<svg .*</svg>", svg(plot, theme), re.DOTALL)
    if found is None:
        raise ValueError(f"{plot.name}: not an SVG document")
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", found[0], flags=re.DOTALL)
    mark = f"{plot.name}-{theme.name}-"
    body = re.sub(r'\bid="', f'id="{mark}', body)
    body = re.sub(r'(xlink:href="|\burl\()#', rf"\1#{mark}", body)
    # Numbers of axes and of pictures must not be read out one by one.
    return body.replace("<svg ", f'<svg class="plot {theme.name}" role="img" aria-labeledby="{plot.name}-alt" ', 1)

"""Plots as files: SVG for the page and for papers, PNG for slides. The same figures give the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

from maskreg.disk import creating
from maskreg.reports.theme import THEMES, Theme, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 200


@dataclass(frozen=True)
class Plot:
    """A plot that can be drawn in any theme.

    Attributes:
        name: file name without suffix, and identifier in the page.
        title: caption.
        alt: text for screen readers.
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
    # Matplotlib leaves trailing spaces.
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def png(plot: Plot, theme: Theme) -> bytes:
    """A plot as a PNG file."""
    buffer = io.BytesIO()
    with mpl.rc_context(style(theme, f"maskreg-{plot.name}-{theme.name}")):
        plot.draw(theme).savefig(buffer, format="png", dpi=PNG_DPI, metadata={"Software": "maskreg"})
    return buffer.getvalue()


def export(plots: list[Plot], folder: Path) -> list[Path]:
    """Write every plot to a folder as SVG and PNG, light and dark.

    Returns:
        The files, in order.

    Raises:
        CannotCreateError: the folder is a file, or cannot be written.
    """
    written = []
    with creating(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for plot in plots:
            for theme in THEMES:
                vector = folder / f"{plot.name}-{theme.name}.svg"
                vector.write_text(svg(plot, theme), encoding="utf-8")
                raster = vector.with_suffix(".png")
                raster.write_bytes(png(plot, theme))
                written += [vector, raster]
    return written


def inline(plot: Plot, theme: Theme) -> str:
    """A plot as an HTML element: no prologue, prefixed identifiers, a label for screen readers."""
    element = re.search(r"<svg .*</svg>", svg(plot, theme), re.DOTALL)
    if element is None:
        raise ValueError(f"{plot.name}: not an SVG document")
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", element[0], flags=re.DOTALL)
    prefix = f"{plot.name}-{theme.name}-"
    body = re.sub(r'\bid="', f'id="{prefix}', body)
    body = re.sub(r'(xlink:href="|\burl\()#', rf"\1#{prefix}", body)
    # As role="img" it is read out as its label, not number by number along the axes.
    return body.replace("<svg ", f'<svg class="plot {theme.name}" role="img" aria-labelledby="{plot.name}-alt" ', 1)

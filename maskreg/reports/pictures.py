"""Plots as pictures: SVG for the page, PDF for papers, PNG for slides. The same figures give the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from maskreg.disk import creating, filling, replacing
from maskreg.reports.numbers import Numbers
from maskreg.reports.theme import LIGHT, SIZES, THEMES, WIDE, Size, Theme, colored, style

PNG_DPI = 200


@dataclass(frozen=True)
class Plot:
    """A plot that can be drawn in any theme and size.

    Attributes:
        name: file name without suffix, and identifier in the page.
        element: what a page shows instead, in its own type.
    """

    name: str
    title: str
    alt: str
    draw: Callable[[Theme, Size], Figure]
    numbers: Numbers
    element: Markup | None = None
    _documents: dict[tuple[Theme, Size], str] = field(default_factory=dict, init=False, repr=False, compare=False)


def svg(plot: Plot, theme: Theme, size: Size = WIDE) -> str:
    """A plot as an SVG document, drawn once: a page shows what it offers for download, and what is exported."""
    if (theme, size) not in plot._documents:
        buffer = io.StringIO()
        with mpl.rc_context(style(theme, _salt(plot, theme, size))):
            plot.draw(theme, size).savefig(buffer, format="svg", metadata={"Date": None, "Creator": "maskreg"})
        # Matplotlib leaves trailing spaces.
        plot._documents[theme, size] = "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
    return plot._documents[theme, size]


def pdf(plot: Plot) -> bytes:
    """A plot as a PDF file, for LaTeX; fonts are embedded whole, as publishers ask."""
    buffer = io.BytesIO()
    with mpl.rc_context({**style(LIGHT, _salt(plot, LIGHT, WIDE)), "pdf.fonttype": 42}):
        plot.draw(LIGHT, WIDE).savefig(buffer, format="pdf", metadata={"CreationDate": None, "Creator": "maskreg"})
    return buffer.getvalue()


def png(plot: Plot, theme: Theme) -> bytes:
    """A plot as a PNG file."""
    buffer = io.BytesIO()
    with mpl.rc_context(style(theme, _salt(plot, theme, WIDE))):
        plot.draw(theme, WIDE).savefig(buffer, format="png", dpi=PNG_DPI, metadata={"Software": "maskreg"})
    return buffer.getvalue()


def writers(figure: Plot) -> dict[str, Callable[[Theme], bytes]]:
    """What makes a figure in each of ``FORMATS``."""
    return {
        "svg": lambda theme: svg(figure, theme).encode(),
        "png": lambda theme: png(figure, theme),
        "pdf": lambda _: pdf(figure),
        "csv": lambda _: figure.numbers.csv().encode(),
        "tex": lambda _: figure.numbers.latex().encode(),
    }


def export(figures: Iterable[Plot], folder: Path, *, force: bool) -> list[Path]:
    """Write every figure to a folder in all its formats, SVG and PNG light and dark.

    Without ``force`` no file is replaced: of two processes one is refused at the first file.

    Returns:
        The files, in order.
    """
    pictures: dict[Path, bytes] = {}
    for figure in figures:
        for suffix, write in writers(figure).items():
            if suffix in ("svg", "png"):
                pictures |= {folder / f"{figure.name}-{theme.name}.{suffix}": write(theme) for theme in THEMES}
            else:
                pictures[folder / f"{figure.name}.{suffix}"] = write(LIGHT)
    size = sum(map(len, pictures.values()))
    with filling(folder, size, what="the folder of plots", left="every file in it is whole"), creating(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in pictures.items():
            with replacing(path, force=force, sync=False) as file:
                file.write(data)
    return list(pictures)


def inline(plot: Plot) -> str:
    """A plot as HTML: an SVG element for a laptop and one for a phone, in the colors of the page.

    They have no prologue, prefixed identifiers, and a label for screen readers.
    """
    return plot.element or "\n".join(_element(plot, size) for size in SIZES)


_FONT = re.compile(r"font-family: [^;]*; ")


def _element(plot: Plot, size: Size) -> str:
    bare = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg(plot, LIGHT, size), flags=re.DOTALL)
    drawn = re.search(r"<svg .*</svg>", bare, re.DOTALL)
    if drawn is None:
        raise ValueError(f"{plot.name}: not an SVG document")
    prefix = f"{plot.name}-{size.name}-"
    body = re.sub(r"<[^>]*>", lambda tag: _prefixed(tag[0], prefix), colored(drawn[0]))
    # As role="img" it is read out as its label, not number by number along the axes.
    return body.replace("<svg ", f'<svg class="plot {size.name}-plot" role="img" aria-labelledby="{plot.name}-alt" ', 1)


def _prefixed(tag: str, prefix: str) -> str:
    # The page sets the font of its plots once.
    tag = _FONT.sub("", tag)
    tag = re.sub(r'\bid="', f'id="{prefix}', tag)
    return re.sub(r'(xlink:href="|\burl\()#', rf"\1#{prefix}", tag)


def _salt(plot: Plot, theme: Theme, size: Size) -> str:
    return f"maskreg-{plot.name}-{theme.name}-{size.name}"

"""The page: one HTML file that needs no network and no script."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from maskreg.analysis.evidence import STRATA
from maskreg.analysis.glossary import explain
from maskreg.analysis.verdict import RULE, null_label
from maskreg.report import words
from maskreg.report.bars import overlap_bars
from maskreg.report.curve import curve
from maskreg.report.geometry import STABLE, Beside
from maskreg.report.heat import heat_map
from maskreg.report.pictures import Plot, inline
from maskreg.report.spectra import path, spectra
from maskreg.report.theme import THEMES

if TYPE_CHECKING:
    from maskreg.report.findings import Findings


MOST_OUTSIDE = 30
"""Tensors outside the layers that are listed by name, the largest first."""


def plots_of(found: Findings) -> dict[str, Plot]:
    """Every plot that the findings have something for, by name."""
    plots = []
    if found.grid.cells:
        layers, modules = len(found.grid.layers), len(found.grid.modules)
        alt = f"Heat map of the density of {modules} modules in {layers} layers."
        plots.append(Plot("density", "Density by layer and module, in percent", alt, partial(heat_map, found.grid)))
    if found.exponents is not None and found.exponents.members.any():
        alt = "Density of the mask by exponent of the source's weights, beside what rounding alone would move."
        plots.append(Plot("exponents", "Density by magnitude", alt, partial(curve, found.exponents)))
    for number, against in enumerate(found.against, start=1):
        if against.comparison.whole.counts.most:
            alt = f"Overlap with {against.name}, beside every null's expectation and the maximum."
            title = "What the two masks share"
            draw = partial(overlap_bars, against.comparison.whole)
            plots.append(Plot(f"overlap-{number}", title, alt, draw))
    if found.geometry is not None and found.geometry.energies and found.geometry.layers:
        alt = "Energy of the update in its largest singular directions, and its stable rank by layer, beside rounding."
        plots.append(Plot("spectra", "Spectra, the median matrix", alt, partial(spectra, found.geometry)))
    if found.trajectory is not None and found.trajectory.points:
        alt = "Density, norm, stable rank and similarity to the final update over the checkpoints of the run."
        plots.append(Plot("trajectory", "How the update grew", alt, partial(path, found.trajectory)))
    return {plot.name: plot for plot in plots}


def page(found: Findings, version: str) -> str:
    """The whole page as HTML. Whatever comes from artifacts is escaped.

    Args:
        found: what it says.
        version: of the program that says it.
    """
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"percent": words.percent, "number": words.number}
    template = environment.from_string((files("maskreg.report") / "page.html.j2").read_text(encoding="utf-8"))
    mark, sentence = words.answer(found)
    return template.render(
        found=found,
        manifest=found.manifest,
        totals=found.manifest.totals,
        mark=mark,
        sentence=sentence,
        rule=RULE,
        plots={name: _drawn(plot) for name, plot in plots_of(found).items()},
        null_label=null_label,
        outside=sorted(found.grid.outside.items(), key=lambda item: -item[1].numel)[:MOST_OUTSIDE],
        strata=STRATA,
        definitions={**words.DEFINITIONS, **(words.GEOMETRY_DEFINITIONS if found.geometry or found.trajectory else {})},
        anchor=lambda figure: explain(figure)[0].name,
        figures=_figures(found),
        rank=_rank(found),
        card=_said(found),
        version=version,
    )


def _drawn(plot: Plot) -> dict[str, Any]:
    # Matplotlib escapes the texts of its pictures; tests hold it to that.
    pictures = Markup("\n").join(Markup(inline(plot, theme)) for theme in THEMES)
    return {"name": plot.name, "title": plot.title, "alt": plot.alt, "pictures": pictures}


def _said(found: Findings) -> dict[str, str]:
    said = {key: value for key, value in asdict(found.card).items() if isinstance(value, str) and value}
    return {**said, **dict(sorted(found.card.meta.items()))}


def _figures(found: Findings) -> list[tuple[str, dict[str, Beside]]]:
    """The figures of geometry that matter most, then the others; what no matrix has is left out."""
    if found.geometry is None:
        return []
    there = {name: beside for name, beside in found.geometry.figures.items() if beside.value is not None}
    key = {name: there[name] for name in words.KEY if name in there}
    return [("key", key), ("rest", {name: beside for name, beside in there.items() if name not in key})]


def _rank(found: Findings) -> Beside | None:
    rank = found.geometry.figures.get(STABLE) if found.geometry else None
    return rank if rank is not None and rank.value is not None and rank.null is not None else None

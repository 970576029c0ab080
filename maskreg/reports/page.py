"""The page: one HTML file without network access or scripts."""

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
from maskreg.reports import words
from maskreg.reports.bars import overlap_bars
from maskreg.reports.curve import curve
from maskreg.reports.geometry import STABLE, FigureMedian
from maskreg.reports.heat import heat_map
from maskreg.reports.pictures import Plot, inline
from maskreg.reports.spectra import growth, spectra
from maskreg.reports.theme import THEMES

if TYPE_CHECKING:
    from maskreg.reports.findings import Findings


MOST_OUTSIDE = 30
"""Maximum number of tensors to list that are outside the layers, the largest first."""


def plots_of(findings: Findings) -> dict[str, Plot]:
    """Every plot for which there are findings, by name."""
    plots = []
    if findings.grid.cells:
        layers, modules = len(findings.grid.layers), len(findings.grid.modules)
        alt = f"Heat map of the density of {modules} modules in {layers} layers."
        plots.append(Plot("density", "Density by layer and module, in percent", alt, partial(heat_map, findings.grid)))
    if findings.exponents is not None and findings.exponents.members.any():
        alt = "Density of the mask by exponent of the source's weights, against rounding alone."
        plots.append(Plot("exponents", "Density by magnitude", alt, partial(curve, findings.exponents)))
    for number, other in enumerate(findings.others, start=1):
        if other.overlap.whole.counts.most:
            alt = f"Overlap with {other.name}, with every null's expectation and the maximum."
            title = "Overlap of the two masks"
            draw = partial(overlap_bars, other.overlap.whole)
            plots.append(Plot(f"overlap-{number}", title, alt, draw))
    if findings.geometry is not None and findings.geometry.energies and findings.geometry.layers:
        alt = "Energy of the update in its largest directions, and stable rank by layer, against rounding alone."
        plots.append(Plot("spectra", "Spectra of the median matrix", alt, partial(spectra, findings.geometry)))
    if findings.trajectory is not None and findings.trajectory.points:
        alt = "Density, norm, stable rank and similarity to the final update over the checkpoints of the run."
        plots.append(Plot("trajectory", "Growth of the update", alt, partial(growth, findings.trajectory)))
    return {plot.name: plot for plot in plots}


def page(findings: Findings, version: str) -> str:
    """The page as HTML, with everything that comes from artifacts escaped.

    Args:
        findings: the content.
        version: of maskreg.
    """
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"percent": words.percent, "number": words.number}
    template = environment.from_string((files("maskreg.reports") / "page.html.j2").read_text(encoding="utf-8"))
    mark, sentence = words.answer(findings)
    geometry = words.GEOMETRY_DEFINITIONS if findings.geometry or findings.trajectory else {}
    return template.render(
        findings=findings,
        manifest=findings.manifest,
        totals=findings.manifest.totals,
        mark=mark,
        sentence=sentence,
        rule=RULE,
        plots={name: _drawn(plot) for name, plot in plots_of(findings).items()},
        null_label=null_label,
        outside=sorted(findings.grid.outside.items(), key=lambda item: -item[1].numel)[:MOST_OUTSIDE],
        strata=STRATA,
        definitions={**words.DEFINITIONS, **geometry},
        anchor=lambda figure: explain(figure)[0].name,
        figures=_figures(findings),
        rank=_rank(findings),
        card=_card(findings),
        version=version,
    )


def _drawn(plot: Plot) -> dict[str, Any]:
    # Markup is not escaped again: Matplotlib escapes texts in SVG, which tests check.
    pictures = Markup("\n").join(Markup(inline(plot, theme)) for theme in THEMES)
    return {"name": plot.name, "title": plot.title, "alt": plot.alt, "pictures": pictures}


def _card(findings: Findings) -> dict[str, str]:
    texts = {key: value for key, value in asdict(findings.card).items() if isinstance(value, str) and value}
    return {**texts, **dict(sorted(findings.card.meta.items()))}


def _figures(findings: Findings) -> list[tuple[str, dict[str, FigureMedian]]]:
    """The key figures of geometry, then the others; figures that no matrix has are omitted."""
    if findings.geometry is None:
        return []
    defined = {name: median for name, median in findings.geometry.figures.items() if median.value is not None}
    key = {name: defined[name] for name in words.KEY if name in defined}
    return [("key", key), ("rest", {name: median for name, median in defined.items() if name not in key})]


def _rank(findings: Findings) -> FigureMedian | None:
    rank = findings.geometry.figures.get(STABLE) if findings.geometry else None
    return rank if rank is not None and rank.value is not None and rank.null is not None else None

"""The page: one HTML file without network access or scripts."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from markupsafe import Markup

from maskreg.analysis.comparison import ConsensusPicture, Intersection, PairOverlap
from maskreg.analysis.coverage import PRESETS
from maskreg.analysis.pairwise import PairMatrix
from maskreg.analysis.verdict import RULE
from maskreg.glossary import GEOMETRY, explain
from maskreg.ref import Card
from maskreg.reports import numbers as tables
from maskreg.reports import words
from maskreg.reports.curve import curve, growth, spectra
from maskreg.reports.findings import Findings
from maskreg.reports.geometry import STABLE, Summary
from maskreg.reports.heat import consensus_heat, headroom_map, heat_map
from maskreg.reports.ladder import NOTE, ladder
from maskreg.reports.modules import Grid
from maskreg.reports.pictures import Plot, inline, svg
from maskreg.reports.shared import intersections, overlap
from maskreg.reports.templates import Definitions, render
from maskreg.reports.theme import DARK, LIGHT
from maskreg.reports.upset import TITLE, upset
from maskreg.words import counted, percent

MOST_OUTSIDE = 30
"""Maximum number of tensors to list that are outside the layers, the largest first."""

MOST_LADDERS = 8
"""Maximum number of masks whose overlap is drawn."""


def plots_of(findings: Findings) -> dict[str, Plot]:
    """Every plot for which there are findings, by name."""
    plots = []
    if findings.grid.cells:
        plots.append(density_plot(findings.grid))
    if findings.exponents is not None and findings.exponents.members.any():
        alt = (
            "Density of the mask by exponent of the source's weights, against rounding alone; zero weights stand apart."
        )
        draw, numbers = partial(curve, findings.exponents), tables.magnitude_numbers(findings.exponents)
        plots.append(Plot("exponents", "Density by magnitude", alt, draw, numbers))
    if findings.matrix is not None:
        plots.append(matrix_plot(findings.matrix))
    plots += [consensus_plot(number, picture) for number, picture in enumerate(findings.consensus, start=1)]
    if findings.geometry is not None and findings.geometry.energies and findings.geometry.layers:
        alt = "Energy of the update in its largest directions, and stable rank by layer, against rounding alone."
        draw, numbers = partial(spectra, findings.geometry), tables.spectra_numbers(findings.geometry)
        plots.append(Plot("spectra", "Spectra of the median matrix", alt, draw, numbers))
    if findings.trajectory is not None and findings.trajectory.checkpoints:
        alt = "Density, norm, stable rank and similarity to the final update over the checkpoints of the run."
        draw, numbers = partial(growth, findings.trajectory), tables.growth_numbers(findings.trajectory)
        plots.append(Plot("trajectory", "Growth of the update", alt, draw, numbers))
    shared = [
        overlap_plot(number, (findings.name, other.name), other.overlap)
        for number, other in enumerate(findings.others[:MOST_LADDERS], start=1)
    ]
    if findings.matrix is not None:
        shared.append(intersections_plot(findings.matrix.names, findings.intersections))
    return {plot.name: plot for plot in [*plots, *(plot for plot in shared if plot.element)]}


def overlap_plot(number: int, names: Sequence[str], pair: PairOverlap) -> Plot:
    """The ladder of the ``number``-th other mask."""
    title, numbers = "Share of the smaller mask that lies in both", tables.overlap_numbers(pair)
    return Plot(f"overlap-{number}", title, "", partial(overlap, names, pair), numbers, ladder(pair))


def intersections_plot(names: Sequence[str], found: Sequence[Intersection]) -> Plot:
    """What three to six masks share."""
    numbers = tables.intersection_numbers(names, found)
    return Plot("intersections", TITLE, "", partial(intersections, names, found), numbers, upset(found))


def density_plot(grid: Grid) -> Plot:
    """The heat map of a mask with layers."""
    highest = max(grid.cells, key=lambda cell: grid.cells[cell].density)
    alt = (
        f"Heat map of the density of {counted(len(grid.modules), 'module')} in {counted(len(grid.layers), 'layer')}. "
        f"The highest is {percent(grid.cells[highest].density)}, of {highest[1]} in layer {highest[0]}."
    )
    draw, numbers = partial(heat_map, grid), tables.density_numbers(grid)
    return Plot("density", "Density by layer and module, in percent", alt, draw, numbers)


def matrix_plot(matrix: PairMatrix) -> Plot:
    """The headrooms of every pair of several masks."""
    alt = (
        f"Heat map of the headroom of {counted(len(matrix.pairs), 'pair')} of {counted(len(matrix.names), 'mask')}, "
        "similar masks beside each other; the table below has every figure."
    )
    draw, numbers = partial(headroom_map, matrix), tables.matrix_numbers(matrix)
    return Plot("matrix", "Headroom of every pair, in percent", alt, draw, numbers)


def consensus_plot(number: int, picture: ConsensusPicture) -> Plot:
    """How many masks hold each coordinate of a matrix, the ``number``-th of a page."""
    masks, name = len(picture.consensus.observed) - 1, picture.name
    alt = (
        f"Heat map of the consensus ratio of {counted(masks, 'mask')} in {name}, from "
        f"{percent(float(picture.ratios.min()))} to {percent(float(picture.ratios.max()))} by block."
    )
    draw, numbers = partial(consensus_heat, picture), tables.consensus_numbers(picture.consensus)
    return Plot(f"consensus-{number}", f"Consensus of {counted(masks, 'mask')} in {name}", alt, draw, numbers)


def page(findings: Findings, version: str, plots: Mapping[str, Plot] | None = None) -> str:
    """The page as HTML, with everything that comes from artifacts escaped."""
    mark, heading, sentence = words.answer(findings)
    geometry = GEOMETRY if findings.geometry or findings.trajectory else {}
    plots = plots_of(findings) if plots is None else plots
    rank = findings.geometry.figures.get(STABLE) if findings.geometry else None
    return render(
        "page.html.j2",
        findings=findings,
        name=findings.name,
        slug=slug(findings.name),
        digest=findings.digest,
        manifest=findings.manifest,
        card=card_of(findings.card),
        mark=mark,
        heading=heading,
        sentence=sentence,
        rule=RULE,
        contents=_contents(findings, plots),
        plots={name: _drawn(plot) for name, plot in plots.items()},
        note=NOTE,
        pairs=[(other.name, other.overlap) for other in findings.others],
        notes=list(dict.fromkeys(note for other in findings.others for note in other.overlap.notes)),
        outside=sorted(findings.grid.outside.items(), key=lambda item: -item[1].numel)[:MOST_OUTSIDE],
        definitions={**words.DEFINITIONS, **geometry},
        anchor=lambda figure: explain(figure)[0].name,
        figures=_figures(findings),
        presets=PRESETS,
        groups=tables.group_numbers(findings.trajectory) if findings.trajectory else None,
        rank=rank if rank is not None and rank.median is not None and rank.null_median is not None else None,
        term=Definitions(),
        light=LIGHT,
        dark=DARK,
        version=version,
    )


def slug(name: str) -> str:
    """A name as the beginning of a file name: ``team/opd:v1`` as ``team-opd-v1``."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "maskreg"


def card_of(card: Card) -> dict[str, str]:
    """The fields of an artifact's card, by key; empty ones are absent."""
    texts = {key: value for key, value in asdict(card).items() if isinstance(value, str) and value}
    return {**texts, **dict(sorted(card.meta.items()))}


def address(media_type: str, data: bytes) -> str:
    """A file as an address that holds all of it."""
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def _drawn(plot: Plot) -> dict[str, Any]:
    files = {"svg": address("image/svg+xml", svg(plot, LIGHT).encode())}
    # Markup is not escaped again: Matplotlib escapes texts in SVG, which tests check.
    pictures = Markup(inline(plot))
    return {"title": plot.title, "alt": plot.alt, "pictures": pictures, "files": files, "numbers": plot.numbers}


def _contents(findings: Findings, plots: Mapping[str, Plot]) -> dict[str, str]:
    others = findings.others
    overlap = f"Overlap with {others[0].name}" if len(others) == 1 else "Overlap with other masks"
    sections = {
        "overlaps": (others, overlap),
        "magnitude": ("exponents" in plots, "By magnitude"),
        "layers": (True, "By layer and module"),
        "geometry": (findings.geometry is not None, "Geometry"),
        "trajectory": ("trajectory" in plots, "Trajectory"),
        "papers": (findings.papers, "Beside published tables"),
        "card": (True, "Card"),
        "judged": (True, "How this is judged"),
        "definitions": (True, "Definitions"),
    }
    return {anchor: title for anchor, (shown, title) in sections.items() if shown}


def _figures(findings: Findings) -> list[tuple[str, dict[str, Summary]]]:
    """The key figures of geometry, then the others; figures that no matrix has are omitted."""
    if findings.geometry is None:
        return []
    defined = {name: figure for name, figure in findings.geometry.figures.items() if figure.mean is not None}
    key = {name: defined[name] for name in words.KEY if name in defined}
    return [("key", key), ("rest", {name: figure for name, figure in defined.items() if name not in key})]

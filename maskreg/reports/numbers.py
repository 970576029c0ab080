"""What plots show, as tables: for readers who cannot see a plot, and to copy from."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from maskreg.analysis.comparison import Consensus, Intersection, PairOverlap
from maskreg.analysis.pairwise import PairMatrix
from maskreg.analysis.verdict import null_label
from maskreg.flow.geometry.exponents import ByExponent
from maskreg.reports.curve import RAISED, name_of, shown
from maskreg.reports.geometry import Geometry, Point, Summary, Trajectory
from maskreg.reports.ladder import rungs
from maskreg.reports.modules import Grid
from maskreg.words import interval, natural, percent, points, three_digits, whole

MOST_GROUPS = 200
"""Maximum number of groups of a trajectory to list, those that moved farthest."""


T = TypeVar("T")


class Number(str):
    """A number as a page shows it, and all its digits; shares are fractions, and an interval is ``LOW..HIGH``."""

    digits: str


def _as(write: Callable[[T], str], value: T, shown: T | None = None) -> Number:
    number = Number(write(value if shown is None else shown))
    number.digits = "..".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)
    return number


@dataclass(frozen=True)
class Numbers:
    """A table."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0

    def csv(self) -> str:
        """The table as CSV, with all digits of its numbers."""
        file = io.StringIO()
        rows = ([cell.digits if isinstance(cell, Number) else cell for cell in row] for row in self.rows)
        csv.writer(file, lineterminator="\n").writerows((self.columns, *rows))
        return file.getvalue()

    def latex(self) -> str:
        """The table as a ``tabular`` of LaTeX, numbers aligned to the right."""
        head, *body = (" & ".join(map(_latex, row)) + r" \\" for row in (self.columns, *self.rows))
        begin = rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}"
        return "\n".join([begin, r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}", ""])


_LOWERED = str.maketrans(RAISED, "-0123456789")
_NOT_LATEX = {"[": "{[}", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _latex(text: str) -> str:
    escaped = re.sub(r"[\[\\~^&%$#_{}]", lambda found: _NOT_LATEX.get(found[0], "\\" + found[0]), text)
    # Formulas in place of the minus sign and raised digits, which the fonts of pdfTeX do not have.
    signed = escaped.replace("−", "$-$")
    return re.sub(f"[{RAISED}]+", lambda found: f"$^{{{found[0].translate(_LOWERED)}}}$", signed)


def density_numbers(grid: Grid) -> Numbers:
    """The density of every module in every layer."""
    cells = {cell: _as(percent, group.density) for cell, group in grid.cells.items()}
    rows = tuple((layer, *(cells.get((layer, module), "") for module in grid.modules)) for layer in grid.layers)
    return Numbers(("layer", *grid.modules), rows)


def matrix_numbers(matrix: PairMatrix) -> Numbers:
    """Every pair of several masks: its answer, headroom and interval."""
    rows = (
        (
            ", ".join(matrix.names[mask] for mask in pair.masks),
            _as(percent, pair.headroom),
            _as(interval, pair.headroom_interval),
            pair.words(matrix.null),
        )
        for pair in matrix.pairs
    )
    return Numbers(("pair", "headroom", "95 % interval", "answer"), tuple(rows))


def consensus_numbers(consensus: Consensus) -> Numbers:
    """Coordinates by the number of masks that hold them, beside independent masks."""
    total = max(sum(consensus.observed), 1)
    rows = (
        (
            str(masks),
            _as(whole, count),
            _as(percent, count / total),
            _as(whole, expected, round(expected)),
            _as(percent, expected / total),
        )
        for masks, (count, expected) in enumerate(zip(consensus.observed, consensus.expected, strict=True))
    )
    return Numbers(("in so many masks", "coordinates", "share", "independent masks", "share"), tuple(rows))


def overlap_numbers(pair: PairOverlap) -> Numbers:
    """What two masks share beside every null, as shares of the smaller mask."""
    rows = (
        (
            null_label(rung.null),
            _as(percent, rung.share),
            _as(interval, (rung.low, rung.high)),
            "yes" if rung.decides else "no",
        )
        for rung in rungs(pair)
    )
    counts = pair.whole.counts
    observed = ("observed", _as(percent, counts.both / counts.most if counts.most else None), "", "")
    return Numbers(("null", "of the smaller mask", "95 % of masks under it", "decides"), (*rows, observed))


def intersection_numbers(names: Sequence[str], intersections: Sequence[Intersection]) -> Numbers:
    """Coordinates by the masks that hold them and no others do, beside independent masks."""
    total = sum(each.coordinates for each in intersections) or 1
    rows = (
        (
            ", ".join(names[mask] for mask in each.masks),
            _as(whole, each.coordinates),
            _as(percent, each.coordinates / total),
            _as(whole, each.expected, round(each.expected)),
        )
        for each in intersections
    )
    return Numbers(("in exactly these masks", "coordinates", "share of any", "independent masks"), tuple(rows))


def magnitude_numbers(exponents: ByExponent) -> Numbers:
    """Weights and density by magnitude, beside the rounding null where it is defined."""
    view, total = shown(exponents), int(exponents.members.sum())
    rows = []
    for field, place in zip(view.fields.tolist(), view.places.tolist(), strict=True):
        members = int(exponents.members[field])
        density = float(exponents.moved[field] / members)
        beside: tuple[str, ...] = ()
        if exponents.expected is not None:
            expected = float(exponents.expected[field] / members)
            beside = _as(percent, expected), _as(points, density - expected)
        rows.append(
            (name_of(field, place), _as(whole, members), _as(percent, members / total), _as(percent, density), *beside)
        )
    columns = ("magnitude", "weights", "share of all", "density")
    null = () if exponents.expected is None else ("rounding alone", "difference")
    return Numbers((*columns, *null), tuple(rows))


def spectra_numbers(geometry: Geometry) -> Numbers:
    """The share of the energy in the largest directions, and the stable rank of every layer."""

    def row(label: str, beside: Summary, *, share: bool) -> tuple[str, ...]:
        text = percent if share else three_digits
        return label, _as(text, beside.median), _as(text, beside.null_median)

    energies = [row(f"energy in the largest {k}", beside, share=True) for k, beside in geometry.energies.items()]
    ranks = [row(f"stable rank, layer {layer}", beside, share=False) for layer, beside in geometry.layers.items()]
    return Numbers(("median over matrices", "this update", "rounding alone"), (*energies, *ranks))


_GROWTH = ("density", "since the one before", "relative norm", "stable rank", "similarity to the end")


def growth_numbers(run: Trajectory) -> Numbers:
    """Every checkpoint of a run."""
    return Numbers(("checkpoint", *_GROWTH), tuple((point.name, *_cells(point)) for point in run.checkpoints))


def group_numbers(run: Trajectory) -> Numbers | None:
    """Every checkpoint for every group of tensors; None without groups."""
    if not run.groups:
        return None
    kept = sorted(run.groups, key=lambda label: -(run.groups[label].checkpoints[-1].relative_norm or 0.0))[:MOST_GROUPS]
    rows = tuple(
        (label or "-", point.name, *_cells(point), _as(percent, group.similarity_by_chance))
        for label in sorted(kept, key=natural)
        for group in [run.groups[label]]
        for point in group.checkpoints
    )
    return Numbers((run.by or "", "checkpoint", *_GROWTH, "by chance"), rows, len(run.groups) - len(kept))


def _cells(point: Point) -> tuple[str, ...]:
    return (
        _as(percent, point.density),
        _as(percent, point.step_density),
        _as(three_digits, point.relative_norm),
        _as(three_digits, point.stable_rank),
        _as(percent, point.similarity_to_final),
    )

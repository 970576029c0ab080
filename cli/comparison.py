"""The result of ``compare`` as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from maskreg.analysis.evidence import BY_BOTH, BY_TENSOR, MATCHED, PER_TENSOR, ROUNDING
from maskreg.analysis.overlap import ratio
from maskreg.analysis.verdict import null_label, verdict
from maskreg.ref import printable
from maskreg.words import counted, percent, three_digits

from .summary import layers_in_order
from .table import Row, table

if TYPE_CHECKING:
    from maskreg.analysis.comparison import PairOverlap
    from maskreg.analysis.consensus import Consensus
    from maskreg.analysis.evidence import OverlapFigures
    from maskreg.analysis.stripes import Stripes
    from maskreg.workspace.compare import MaskComparison

_LABEL = 26
_WIDTH = 110


def text(result: MaskComparison, by: str | None) -> str:
    """A comparison as text: masks, figures, notes, and the verdict of each pair.

    Args:
        result: the masks and their comparison.
        by: ``role``, ``layer`` or ``tensor`` for a line on each group; None for none.
    """
    comparison = result.comparison
    letters = [_letter(number) for number in range(len(result.masks))]
    rows = [
        (letter, mask.name, mask.digest.short, mask.artifact.manifest.kind, f"rule {mask.artifact.manifest.rule}")
        for letter, mask in zip(letters, result.masks, strict=True)
    ]
    lines = table(rows, right=5)
    named = list(zip(combinations(letters, 2), comparison.pairs, strict=True))
    scope = comparison.pairs[0].scope
    lines += [f"{counted(scope['tensors'], 'tensor')}, {counted(scope['coordinates'], 'coordinate')}", ""]
    lines += _pair(*named[0]) if len(named) == 1 else _pairs(named)
    for names, pair in named if by else ():
        groups = {"role": pair.roles, "layer": pair.layers, "tensor": pair.tensors}[by or "role"]
        title = (by or "") + (f", {' and '.join(names)}" if len(named) > 1 else "")
        lines += ["", *_groups(title, names, groups, by)]
    if comparison.consensus is not None:
        lines += ["", *_consensus(comparison.consensus)]
    if comparison.stripes:
        lines += ["", *_stripes(letters, comparison.stripes)]
    notes = dict.fromkeys(note for pair in comparison.pairs for note in pair.notes)
    lines += ["", *(line for note in notes for line in textwrap.wrap(f"note: {note}", _WIDTH))] if notes else []
    for names, pair in named:
        lines += ["", *textwrap.wrap(verdict(pair.whole, names).sentence, _WIDTH)]
    return "\n".join(map(printable, lines))


def _pair(names: tuple[str, str], pair: PairOverlap) -> list[str]:
    a, b = names
    counts, overlap = pair.whole.counts, pair.whole.overlap
    observed = [
        ("density", f"{a} {percent(overlap.density_a)}, {b} {percent(overlap.density_b)}"),
        ("in both", f"{counts.both:,} of {counts.a:,} and {counts.b:,}"),
        ("coverage", f"{percent(overlap.coverage_a)} of {a}, {percent(overlap.coverage_b)} of {b}"),
        ("jaccard", f"{three_digits(overlap.jaccard)}, uniform random {three_digits(overlap.jaccard_random)}"),
        (
            "lift",
            f"{three_digits(overlap.lift)} of at most {three_digits(overlap.lift_max)} ({percent(overlap.lift_share)})",
        ),
        ("phi", f"{three_digits(overlap.phi)} of at most {three_digits(overlap.phi_max)}"),
    ]
    rows: list[Row] = [("null", "lift", "observed/expected", "headroom", "deviations")]
    rows += [
        (
            null_label(null),
            three_digits(over.lift),
            three_digits(over.ratio),
            percent(over.headroom),
            _whole(over.deviations),
        )
        for null, over in pair.whole.nulls.items()
        if not over.reason
    ]
    odds = [("odds ratio", three_digits(overlap.odds_ratio))]
    stratified = pair.whole.mantel_haenszel.items()
    odds += [(f"  {strata.replace('-', ' ')}", three_digits(odds_ratio)) for strata, odds_ratio in stratified]
    return [
        *(f"{label:<{_LABEL}}{value}" for label, value in observed),
        "",
        *table(rows, first=_LABEL),
        "",
        *(f"{label:<{_LABEL}}{value}" for label, value in odds if value != "-" or label == "odds ratio"),
    ]


def _pairs(named: Sequence[tuple[tuple[str, str], PairOverlap]]) -> list[str]:
    rows = [
        (
            f"{a} {b}",
            percent(pair.whole.overlap.density_a),
            percent(pair.whole.overlap.density_b),
            three_digits(pair.whole.overlap.jaccard),
            three_digits(pair.whole.overlap.lift),
            three_digits(pair.whole.overlap.lift_max),
            *_last_columns(pair.whole),
        )
        for (a, b), pair in named
    ]
    titles = ("pair", "density", "density", "jaccard", "lift", "of at most")
    return table([*_titles(titles, named[0][1].whole), *rows])


def _groups(title: str, names: tuple[str, str], groups: Mapping[str, OverlapFigures], by: str | None) -> list[str]:
    ordered = layers_in_order(groups) if by == "layer" else groups
    titles = (title, "coordinates", *names, "lift", "of at most")
    rows = [
        (
            name,
            f"{figures.counts.numel:,}",
            percent(figures.overlap.density_a),
            percent(figures.overlap.density_b),
            three_digits(figures.overlap.lift),
            three_digits(figures.overlap.lift_max),
            *_last_columns(figures),
        )
        for name, figures in ordered.items()
    ]
    return table([*_titles(titles, *list(groups.values())[:1]), *rows])


def _titles(first: Row, *groups: OverlapFigures) -> list[Row]:
    """Two title lines: the figures, and under those of :func:`_last_columns` their nulls."""
    finest = "tensor" if all(figures.nulls[MATCHED].reason for figures in groups) else "exponent"
    nulls = ("tensor", "exponent", "rounding", finest, finest)
    return [(*first, "ratio", "ratio", "ratio", "headroom", "odds ratio"), (*("" for _ in first), *nulls)]


def _last_columns(figures: OverlapFigures) -> Row:
    """Ratios under three nulls; headroom and odds ratio under the finest stratification that is defined."""
    nulls = figures.nulls
    matched = not nulls[MATCHED].reason
    ratios = (three_digits(nulls[null].ratio) for null in (PER_TENSOR, MATCHED, ROUNDING))
    headroom = nulls[MATCHED if matched else PER_TENSOR].headroom
    return (*ratios, percent(headroom), three_digits(figures.mantel_haenszel[BY_BOTH if matched else BY_TENSOR]))


def _consensus(consensus: Consensus) -> list[str]:
    rows: list[Row] = [("in exactly", "coordinates", "independent", "over independent")]
    for k, (observed, expected) in enumerate(zip(consensus.observed, consensus.expected, strict=True)):
        rows.append((counted(k, "mask"), f"{observed:,}", f"{expected:,.0f}", three_digits(ratio(observed, expected))))
    return table(rows)


def _stripes(letters: Sequence[str], masks: Sequence[Mapping[str, Stripes]]) -> list[str]:
    row_titles = ("rows var/binomial", "full rows", "empty rows")
    titles = ("stripes", *row_titles, "columns var/binomial", "full columns", "empty columns")
    rows = [
        (
            f"{letter} {name}",
            *(
                cell
                for lines in (stripes.rows, stripes.columns)
                for cell in (three_digits(lines.dispersion), percent(lines.full), percent(lines.empty))
            ),
        )
        for letter, mask in zip(letters, masks, strict=True)
        for name, stripes in mask.items()
    ]
    return table([titles, *rows])


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"M{number + 1}"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"

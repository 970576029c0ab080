"""A comparison of masks as text for people and as a document for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from maskreg.analysis.evidence import BY_BOTH, BY_TENSOR, MATCHED, PER_TENSOR, ROUNDING
from maskreg.analysis.verdict import null_label, three_digits, verdict
from maskreg.ref import printable
from maskreg.words import counted

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
    """A comparison for people.

    Args:
        result: the comparison.
        by: ``role``, ``layer`` or ``tensor``: a line for each of these too.
    """
    found = result.comparison
    letters = [_letter(number) for number in range(len(result.masks))]
    named_masks = [
        (letter, mask.name, mask.digest.short, mask.artifact.manifest.kind, f"rule {mask.artifact.manifest.rule}")
        for letter, mask in zip(letters, result.masks, strict=True)
    ]
    lines = table(named_masks, right=5)
    named = list(zip(combinations(letters, 2), found.pairs, strict=True))
    scope = found.pairs[0].scope
    lines += [f"{counted(scope['tensors'], 'tensor')}, {counted(scope['coordinates'], 'coordinate')}", ""]
    lines += _pair(*named[0]) if len(named) == 1 else _pairs(named)
    for names, pair in named if by else ():
        groups = {"role": pair.roles, "layer": pair.layers, "tensor": pair.tensors}[by or "role"]
        title = (by or "") + (f", {' and '.join(names)}" if len(named) > 1 else "")
        lines += ["", *_groups(title, names, groups, by)]
    if found.consensus is not None:
        lines += ["", *_consensus(found.consensus)]
    if found.stripes:
        lines += ["", *_stripes(letters, found.stripes)]
    notes = dict.fromkeys(note for pair in found.pairs for note in pair.notes)
    lines += ["", *(line for note in notes for line in textwrap.wrap(f"note: {note}", _WIDTH))] if notes else []
    for names, pair in named:
        lines += ["", *textwrap.wrap(verdict(pair.whole, names).sentence, _WIDTH)]
    return "\n".join(map(printable, lines))


def _pair(names: tuple[str, str], pair: PairOverlap) -> list[str]:
    a, b = names
    counts, seen = pair.whole.counts, pair.whole.overlap
    observed = [
        ("density", f"{a} {_percent(seen.density_a)}, {b} {_percent(seen.density_b)}"),
        ("in both", f"{counts.both:,} of {counts.a:,} and {counts.b:,}"),
        ("coverage", f"{_percent(seen.coverage_a)} of {a}, {_percent(seen.coverage_b)} of {b}"),
        ("jaccard", f"{_three(seen.jaccard)}, uniform random {_three(seen.jaccard_random)}"),
        ("lift", f"{_three(seen.lift)} of at most {_three(seen.lift_max)} ({_percent(seen.lift_share)})"),
        ("phi", f"{_three(seen.phi)} of at most {_three(seen.phi_max)}"),
    ]
    rows: list[Row] = [("null", "lift", "observed/expected", "headroom", "deviations")]
    rows += [
        (null_label(null), _three(it.lift), _three(it.ratio), _percent(it.headroom), _whole(it.deviations))
        for null, it in pair.whole.nulls.items()
        if not it.reason
    ]
    ratios = [("odds ratio", _three(seen.odds_ratio))]
    ratios += [(f"  {name.replace('-', ' ')}", _three(it)) for name, it in pair.whole.mantel_haenszel.items()]
    return [
        *(f"{label:<{_LABEL}}{value}" for label, value in observed),
        "",
        *table(rows, first=_LABEL),
        "",
        *(f"{label:<{_LABEL}}{value}" for label, value in ratios if value != "-" or label == "odds ratio"),
    ]


def _pairs(named: Sequence[tuple[tuple[str, str], PairOverlap]]) -> list[str]:
    rows = [
        (
            f"{a} {b}",
            _percent(pair.whole.overlap.density_a),
            _percent(pair.whole.overlap.density_b),
            _three(pair.whole.overlap.jaccard),
            _three(pair.whole.overlap.lift),
            _three(pair.whole.overlap.lift_max),
            *_left(pair.whole),
        )
        for (a, b), pair in named
    ]
    head = ("pair", "density", "density", "jaccard", "lift", "of at most")
    return table([*_head(head, named[0][1].whole), *rows])


def _groups(title: str, names: tuple[str, str], groups: Mapping[str, OverlapFigures], by: str | None) -> list[str]:
    ordered = layers_in_order(groups) if by == "layer" else groups
    head = (title, "coordinates", *names, "lift", "of at most")
    rows = [
        (
            name,
            f"{it.counts.numel:,}",
            _percent(it.overlap.density_a),
            _percent(it.overlap.density_b),
            _three(it.overlap.lift),
            _three(it.overlap.lift_max),
            *_left(it),
        )
        for name, it in ordered.items()
    ]
    return table([*_head(head, *list(groups.values())[:1]), *rows])


def _head(first: Row, *some: OverlapFigures) -> list[Row]:
    """Two lines over a table: the figures, and under those of :func:`_left` what each of them is beside."""
    finest = "tensor" if all(figures.nulls[MATCHED].reason for figures in some) else "exponent"
    beside = ("tensor", "exponent", "rounding", finest, finest)
    return [(*first, "ratio", "ratio", "ratio", "headroom", "odds ratio"), (*("" for _ in first), *beside)]


def _left(figures: OverlapFigures) -> Row:
    """Observed over expected under three_digits nulls; headroom and odds ratio under the most that is known."""
    nulls = figures.nulls
    best = nulls[PER_TENSOR] if nulls[MATCHED].reason else nulls[MATCHED]
    odds = figures.mantel_haenszel[BY_TENSOR] if nulls[MATCHED].reason else figures.mantel_haenszel[BY_BOTH]
    ratios = (_three(nulls[null].ratio) for null in (PER_TENSOR, MATCHED, ROUNDING))
    return (*ratios, _percent(best.headroom), _three(odds))


def _consensus(found: Consensus) -> list[str]:
    rows: list[Row] = [("in exactly", "coordinates", "independent", "over independent")]
    for k, (seen, chance) in enumerate(zip(found.observed, found.expected, strict=True)):
        rows.append((counted(k, "mask"), f"{seen:,}", f"{chance:,.0f}", _three(seen / chance if chance else None)))
    return table(rows)


def _stripes(letters: Sequence[str], masks: Sequence[Mapping[str, Stripes]]) -> list[str]:
    of_rows = ("rows var/binomial", "full rows", "empty rows")
    head = ("stripes", *of_rows, "columns var/binomial", "full columns", "empty columns")
    rows = [
        (
            f"{letter} {name}",
            *(
                cell
                for lines in (found.rows, found.columns)
                for cell in (_three(lines.dispersion), _percent(lines.full), _percent(lines.empty))
            ),
        )
        for letter, mask in zip(letters, masks, strict=True)
        for name, found in mask.items()
    ]
    return table([head, *rows])


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"M{number + 1}"


def _three(value: float | None) -> str:
    return "-" if value is None else three_digits(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{_three(100 * value)} %"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"

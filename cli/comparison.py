"""The results of ``compare`` as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from operator import attrgetter
from typing import TYPE_CHECKING

from maskreg.analysis.comparison import ONLY_OF_SIX, PairOverlap
from maskreg.analysis.evidence import BY_BOTH, BY_TENSOR, MATCHED, NO_SOURCE, PER_TENSOR, ROUNDING, OverlapFigures
from maskreg.analysis.overlap import ratio
from maskreg.analysis.verdict import RULE, Outcome, deciding, null_label, verdict
from maskreg.words import counted, interval, percent, three_digits, times, whole

from .table import UNLIMITED, Column, fields, listing, noted, ordered, page, paragraph, table, width

if TYPE_CHECKING:
    from maskreg.analysis.pairwise import PairMatrix
    from maskreg.analysis.updates import UpdatePair
    from maskreg.workspace.verbs.compare import MaskComparison

_LABEL = 26  # where the figures of two masks begin
_SQUARE = 12  # masks up to which the square is printed in a terminal
_START = "say --start yes if training of A or of B began at the source, bit for bit"


def text(result: MaskComparison, by: str | None, *, verbose: bool = False) -> str:
    """A comparison as text: the answer, the masks, the figures that it rests on, groups, and notes."""
    letters = [chr(ord("A") + n) if n < 26 else f"M{n + 1}" for n in range(len(result.masks))]
    pairs = dict(zip(combinations(letters, 2), result.pairs, strict=True))
    names, first = next(iter(pairs.items()))
    if result.matrix is None:
        answer = verdict(first.whole, names, first.asked).sentence
        blocks = [_figures(names, first, verbose=verbose), _nulls(names, first, verbose=verbose)]
    else:
        answer = result.matrix.sentence
        blocks = _matrix(letters, result.matrix, verbose=verbose)
        if verbose:
            each = {" ".join(letters): pair.whole for letters, pair in pairs.items()}
            blocks.append(_overlaps("pair", ("first", "second"), each, verbose=True))
    if by:
        for names, pair in pairs.items():
            title = by + (f", {' and '.join(names)}" if len(pairs) > 1 else "")
            groups = ordered(pair.by(by)) if by == "layer" else pair.by(by)
            blocks.append(_overlaps(title, names, groups, verbose=verbose))
    columns: dict[str, Column] = {
        "coordinates": (whole, lambda row: row[0]),
        "independent": (whole, lambda row: row[1]),
        "over independent": (times, lambda row: ratio(*row)),
    }
    crossed = {
        " ".join(letters[mask] for mask in each.masks): (each.coordinates, each.expected)
        for each in result.intersections
    }
    if crossed:
        fold = ("intersections", "coordinates")
        blocks.append(listing("in exactly these", crossed, columns, fold=fold, whole=verbose))
    if verbose and (consensus := result.consensus):
        counts = zip(consensus.observed, consensus.expected, strict=True)
        blocks.append(listing("in exactly", {counted(k, "mask"): row for k, row in enumerate(counts)}, columns))
    blocks.append(_stripes(letters, result, verbose=verbose))
    if result.updates:
        updates = dict(zip(pairs, result.updates, strict=True))
        blocks += _directions(updates, by, verbose=verbose)
    blocks.append(_notes(result, verbose=verbose))
    return page(paragraph(answer), _masks(letters, result), *blocks)


def _notes(result: MaskComparison, *, verbose: bool) -> list[str]:
    pairs = result.pairs
    notes = dict.fromkeys(note for pair in pairs for note in pair.notes)
    lines = noted(f"{note}: name it with --source" if note.endswith(NO_SOURCE) else note for note in notes)
    if result.matrix is not None and not result.intersections:
        lines += noted([ONLY_OF_SIX])
    if result.matrix is None and _start_settles(pairs[0]):
        lines += noted([_START])
    return lines + (paragraph(RULE) if verbose and any(pair.verdict.null for pair in pairs) else [])


def _start_settles(pair: PairOverlap) -> bool:
    """Whether the verdict would be settled if one run were known to have started at the source."""
    asked = replace(pair.asked, start="yes")
    told = pair.verdict.outcome is not Outcome.OPEN or verdict(pair.whole, asked=asked).outcome is Outcome.OPEN
    return pair.asked.start == "unknown" and not told


def _masks(letters: Sequence[str], result: MaskComparison) -> list[str]:
    lines = []
    for letter, mask in zip(letters, result.masks, strict=True):
        manifest = mask.artifact.manifest
        text = f"{mask.name}  {mask.digest.short}  {manifest.kind}  rule {manifest.rule}"
        lines += fields([(letter, text)], len(letter) + 2)
    scope = result.pairs[0].scope
    return [*lines, *paragraph(f"{counted(scope['tensors'], 'tensor')}, {counted(scope['coordinates'], 'coordinate')}")]


def _figures(names: tuple[str, str], pair: PairOverlap, *, verbose: bool) -> list[str]:
    """What two masks share, without regard to a null."""
    (a, b), counts, overlap = names, pair.whole.counts, pair.whole.overlap
    share = f", {percent(counts.both / counts.most)} of the smaller" if counts.most else ""
    rows = [
        ("density", f"{a} {percent(overlap.density_a)}, {b} {percent(overlap.density_b)}"),
        ("in both", counted(counts.both, "coordinate") + share),
    ]
    if not verbose:
        return fields(rows, _LABEL)
    coverage = (
        f"{percent(overlap.coverage_a)} of {a} ({counts.a:,}), {percent(overlap.coverage_b)} of {b} ({counts.b:,})"
    )
    rows += [
        ("coverage", coverage),
        ("jaccard", f"{three_digits(overlap.jaccard)}, uniform random {three_digits(overlap.jaccard_random)}"),
        ("lift", f"{times(overlap.lift)} of at most {times(overlap.lift_max)} ({percent(overlap.lift_share)})"),
        ("phi", f"{three_digits(overlap.phi)} of at most {three_digits(overlap.phi_max)}"),
        ("odds ratio", times(overlap.odds_ratio)),
    ]
    for strata, odds in pair.whole.mantel_haenszel.items():
        if odds is not None:
            ends = pair.whole.mantel_haenszel_intervals[strata]
            beside = f", 95 % interval {three_digits(ends[0])} to {three_digits(ends[1])}" if ends else ""
            rows.append((f"  {strata.replace('-', ' ')}", times(odds) + beside))
    return fields(rows, _LABEL)


def _nulls(names: tuple[str, str], pair: PairOverlap, *, verbose: bool) -> list[str]:
    """What two masks share beside every null, or beside the nulls that the verdict rests on."""
    decide = deciding(pair.whole) if pair.verdict.null else ()
    counts, nulls = pair.whole.counts, pair.whole.nulls.items()
    columns: dict[str, Column] = {
        "of the smaller": (percent, lambda null: ratio(null[1].expected, counts.most)),
        "observed/expected": (times, lambda null: null[1].ratio),
        "headroom": (percent, lambda null: null[1].headroom),
        "95 % interval": (interval, lambda null: null[1].headroom_interval),
    }
    if verbose:
        columns |= {
            "expected": (whole, lambda null: null[1].expected),
            "lift": (times, lambda null: null[1].lift),
            "deviations": (three_digits, lambda null: null[1].deviations),
            "decides": (str, lambda null: "yes" if null[0] in decide else ""),
        }
    shown = {
        null_label(name, names): (name, over) for name, over in nulls if name in decide or (verbose and not over.reason)
    }
    return listing("null", shown, columns, first=_LABEL) if shown else []


def _matrix(letters: Sequence[str], pairs: PairMatrix, *, verbose: bool) -> list[list[str]]:
    """The square of headrooms, similar masks beside each other, and a line on every pair."""
    blocks = [paragraph(pairs.terms)]
    if verbose or width() >= UNLIMITED or len(letters) <= _SQUARE:
        shares = {pair.masks: percent(pair.headroom) for pair in pairs.pairs}
        rows = [("headroom", *(letters[mask] for mask in pairs.order))]
        rows += [
            (letters[row], *(shares.get((min(row, other), max(row, other)), "") for other in pairs.order))
            for row in pairs.order
        ]
        blocks.append(table(rows))
    columns: dict[str, Column] = {
        "answer": (str, lambda pair: pair.words(pairs.null)),
        "headroom": (percent, attrgetter("headroom")),
        "95 % interval": (interval, attrgetter("headroom_interval")),
    }
    named = {" ".join(letters[mask] for mask in pair.masks): pair for pair in pairs.pairs}
    return [*blocks, listing("pair", named, columns, fold=("pairs", "headroom"), whole=verbose, words=2)]


def _overlaps(title: str, names: tuple[str, str], groups: Mapping[str, OverlapFigures], *, verbose: bool) -> list[str]:
    """A line on each group, or pair: ratios under three nulls; the rest under the finest null that is defined."""
    coarse = all(figures.nulls[MATCHED].reason for figures in list(groups.values())[:1])
    finest = "tensor" if coarse else "exponent"

    def null(figures: OverlapFigures) -> str:
        return PER_TENSOR if figures.nulls[MATCHED].reason else MATCHED

    columns: dict[str, Column] = {
        "coordinates": (whole, attrgetter("counts.numel")),
        names[0]: (percent, attrgetter("overlap.density_a")),
        names[1]: (percent, attrgetter("overlap.density_b")),
    }
    if verbose:
        columns |= {
            "jaccard": (three_digits, attrgetter("overlap.jaccard")),
            "lift": (times, attrgetter("overlap.lift")),
            "of at most": (times, attrgetter("overlap.lift_max")),
            "ratio\ntensor": (times, lambda figures: figures.nulls[PER_TENSOR].ratio),
            "ratio\nexponent": (times, lambda figures: figures.nulls[MATCHED].ratio),
            "ratio\nrounding": (times, lambda figures: figures.nulls[ROUNDING].ratio),
        }
    else:
        columns[f"ratio\n{finest}"] = (times, lambda figures: figures.nulls[null(figures)].ratio)
    columns[f"headroom\n{finest}"] = (percent, lambda figures: figures.nulls[null(figures)].headroom)
    if verbose:
        strata = {PER_TENSOR: BY_TENSOR, MATCHED: BY_BOTH}
        columns[f"odds ratio\n{finest}"] = (times, lambda figures: figures.mantel_haenszel[strata[null(figures)]])
    things = title.partition(",")[0] + "s"
    return listing(title, groups, columns, fold=(things, "headroom"), whole=verbose)


def _stripes(letters: Sequence[str], result: MaskComparison, *, verbose: bool) -> list[str]:
    columns: dict[str, Column] = {
        "rows var/binomial": (times, attrgetter("rows.dispersion")),
        "full rows": (percent, attrgetter("rows.full")),
        "empty rows": (percent, attrgetter("rows.empty")),
        "columns var/binomial": (times, attrgetter("columns.dispersion")),
        "full columns": (percent, attrgetter("columns.full")),
        "empty columns": (percent, attrgetter("columns.empty")),
    }
    masks = zip(letters, result.stripes, strict=False)
    stripes = {f"{letter} {name}": each for letter, mask in masks for name, each in mask.items()}
    if not stripes:
        return []
    return listing("stripes", stripes, columns, fold=("tensors", "rows var/binomial"), whole=verbose)


_LEGEND = (
    "sd: of the cosine if the sign of every difference were random. By chance: the mean of random sets of as many "
    "channels."
)


def _directions(updates: Mapping[tuple[str, str], UpdatePair], by: str | None, *, verbose: bool) -> list[list[str]]:
    """Cosine, orthogonal energy and shared channels of every pair of updates; then cosines by group."""
    columns: dict[str, Column] = {
        **_products("whole."),
        "by tensor": (" and ".join, lambda pair: map(percent, pair.orthogonal_by_tensor)),
        "top channels": (three_digits, attrgetter("channels.jaccard")),
        "by chance": (three_digits, attrgetter("channels.expected")),
    }
    named = {" ".join(letters): pair for letters, pair in updates.items()}
    lines = [*listing("updates", named, columns), *paragraph(_LEGEND)]
    for name, pair in named.items():
        if pair.whole.nonfinite:
            number = counted(pair.whole.nonfinite, "coordinate")
            lines += paragraph(f"{name}: {number} left out, because a number is NaN or infinite")
        if pair.channels.left_out:
            number = counted(len(pair.channels.left_out), "MLP")
            lines += paragraph(f"{name}: {number} left out, because an update does not move them")
    fold = (f"{by}s", "cosine")
    products: dict[str, Column] = {"coordinates": (whole, attrgetter("numel")), **_products()}
    grouped = [
        listing(f"{by}, {' and '.join(letters)}", ordered(pair.by(by)), products, fold=fold, whole=verbose)
        for letters, pair in updates.items()
        if by
    ]
    return [lines, *grouped]


def _products(of: str = "") -> dict[str, Column]:
    return {
        "cosine": (three_digits, attrgetter(f"{of}cosine")),
        "sd": (three_digits, attrgetter(f"{of}cosine_sd")),
        "orthogonal": (percent, attrgetter(f"{of}orthogonal")),
    }

"""The results of ``compare`` and ``survey`` as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from maskreg.analysis.evidence import BY_BOTH, BY_TENSOR, MATCHED, NO_SOURCE, PER_TENSOR, ROUNDING
from maskreg.analysis.overlap import ratio
from maskreg.analysis.verdict import RULE, Outcome, deciding, null_label, verdict
from maskreg.ref import printable
from maskreg.words import counted, interval, percent, three_digits, times, whole

from .summary import layers_in_order
from .table import Row, fields, folded, matrix, noted, paragraph, table

if TYPE_CHECKING:
    from maskreg.analysis.comparison import Consensus, ConsensusMap, PairOverlap, Stripes
    from maskreg.analysis.evidence import OverlapFigures
    from maskreg.analysis.updates import Products, UpdatePair
    from maskreg.workspace.verbs.compare import MaskComparison
    from maskreg.workspace.verbs.survey import MaskSurvey


_LABEL = 26  # where the figures of the detailed tables begin
_SHORT = 19  # where those under the verdict begin
_START = "say --start yes if training of A or of B began at the source, bit for bit"


def text(result: MaskComparison, by: str | None, *, verbose: bool = False) -> str:
    """A comparison as text: the answer, the masks, the figures that it rests on, groups, and notes."""
    comparison = result.comparison
    letters = [_letter(number) for number in range(len(result.masks))]
    named = list(zip(combinations(letters, 2), comparison.pairs, strict=True))
    if comparison.matrix is not None:
        lines = [*paragraph(comparison.matrix.sentence), "", *_masks(letters, result), ""]
        lines += matrix(letters, comparison.matrix, verbose=verbose)
        lines += ["", *_pairs(named)] if verbose else []
    else:
        names, pair = named[0]
        lines = [*paragraph(verdict(pair.whole, names, pair.asked).sentence), "", *_masks(letters, result), ""]
        lines += _figures(names, pair)
        lines += ["", *_details(names, pair)] if verbose else []
    if by is not None:
        for names, pair in named:
            title = by + (f", {' and '.join(names)}" if len(named) > 1 else "")
            lines += ["", *_groups(title, names, pair.by(by), by, verbose=verbose)]
    if comparison.consensus is not None and verbose:
        lines += ["", *_consensus(comparison.consensus)]
    if comparison.stripes:
        lines += ["", *_stripes(letters, comparison.stripes, verbose=verbose)]
    if result.consensus_maps:
        lines += ["", *_maps(result.consensus_maps, verbose=verbose)]
    if result.updates:
        pairs = list(combinations(letters, 2))
        lines += ["", *directions(list(zip(pairs, result.updates, strict=True)), by, verbose=verbose)]
    notes = [
        f"{note}{': name it with --source' if note.endswith(NO_SOURCE) else ''}"
        for note in dict.fromkeys(note for pair in comparison.pairs for note in pair.notes)
    ]
    notes += [_START for _, pair in named[:1] if comparison.matrix is None and _start_settles(pair)]
    below = noted(notes)
    below += paragraph(RULE) if verbose and any(pair.verdict.null for pair in comparison.pairs) else []
    lines += ["", *below] if below else []
    return "\n".join(map(printable, lines))


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
    scope = result.comparison.pairs[0].scope
    return [*lines, *paragraph(f"{counted(scope['tensors'], 'tensor')}, {counted(scope['coordinates'], 'coordinate')}")]


def _figures(names: tuple[str, str], pair: PairOverlap) -> list[str]:
    """The few figures that the verdict rests on."""
    (a, b), overlap, null = names, pair.whole.overlap, pair.verdict.null
    rows = [
        ("density", f"{a} {percent(overlap.density_a)}, {b} {percent(overlap.density_b)}"),
        ("in both", f"{counted(pair.whole.counts.both, 'coordinate')}"),
    ]
    lines = fields(rows, _SHORT)
    if not null:
        return lines
    beside: list[Row] = [("null", "expected", "observed/expected", "headroom", "95 % interval")]
    for name in deciding(pair.whole):
        over = pair.whole.nulls[name]
        figures = (whole(over.expected), times(over.ratio), percent(over.headroom), interval(over.headroom_interval))
        beside.append((null_label(name, names), *figures))
    return [*lines, "", *table(beside, first=_LABEL)]


def _details(names: tuple[str, str], pair: PairOverlap) -> list[str]:
    a, b = names
    counts, overlap = pair.whole.counts, pair.whole.overlap
    observed = [
        (
            "coverage",
            f"{percent(overlap.coverage_a)} of {a} ({counts.a:,}), {percent(overlap.coverage_b)} of {b} ({counts.b:,})",
        ),
        ("jaccard", f"{three_digits(overlap.jaccard)}, uniform random {three_digits(overlap.jaccard_random)}"),
        ("lift", f"{times(overlap.lift)} of at most {times(overlap.lift_max)} ({percent(overlap.lift_share)})"),
        ("phi", f"{three_digits(overlap.phi)} of at most {three_digits(overlap.phi_max)}"),
    ]
    rows: list[Row] = [("null", "lift", "observed/expected", "headroom", "95 % interval", "deviations")]
    rows += [
        (
            *(null_label(null), times(over.lift), times(over.ratio), percent(over.headroom)),
            *(interval(over.headroom_interval), three_digits(over.deviations)),
        )
        for null, over in pair.whole.nulls.items()
        if not over.reason
    ]
    odds = [("odds ratio", times(overlap.odds_ratio))]
    stratified = pair.whole.mantel_haenszel.items()
    odds += [
        (f"  {strata.replace('-', ' ')}", times(ratio) + _ends(pair.whole.mantel_haenszel_intervals[strata]))
        for strata, ratio in stratified
        if ratio is not None
    ]
    return [
        *fields(observed, _LABEL),
        "",
        *table(rows, first=_LABEL),
        "",
        *fields(odds, _LABEL),
    ]


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f", 95 % interval {three_digits(interval[0])} to {three_digits(interval[1])}"


def _pairs(named: Sequence[tuple[tuple[str, str], PairOverlap]]) -> list[str]:
    rows = [
        (
            f"{a} {b}",
            percent(pair.whole.overlap.density_a),
            percent(pair.whole.overlap.density_b),
            three_digits(pair.whole.overlap.jaccard),
            *_lifts(pair.whole),
            *_last_columns(pair.whole, verbose=True),
        )
        for (a, b), pair in named
    ]
    titles = ("pair", "density", "density", "jaccard", "lift", "of at most")
    return table([*_titles(titles, named[0][1].whole, verbose=True), *rows])


def _groups(
    title: str, names: tuple[str, str], groups: Mapping[str, OverlapFigures], by: str, *, verbose: bool
) -> list[str]:
    ordered = layers_in_order(groups) if by == "layer" else groups
    kept, left_out = folded(ordered, _headroom, things=f"{by}s", by="headroom", whole=verbose)
    titles = (title, "coordinates", *names, *(("lift", "of at most") if verbose else ()))
    rows = [
        (
            name,
            whole(figures.counts.numel),
            percent(figures.overlap.density_a),
            percent(figures.overlap.density_b),
            *(_lifts(figures) if verbose else ()),
            *_last_columns(figures, verbose=verbose),
        )
        for name, figures in kept.items()
    ]
    return [*table([*_titles(titles, *list(groups.values())[:1], verbose=verbose), *rows]), *left_out]


def _lifts(figures: OverlapFigures) -> Row:
    return times(figures.overlap.lift), times(figures.overlap.lift_max)


def _titles(first: Row, *groups: OverlapFigures, verbose: bool) -> list[Row]:
    """Two title lines: the figures, and under the last columns their nulls."""
    finest = "tensor" if all(figures.nulls[MATCHED].reason for figures in groups) else "exponent"
    blank = tuple("" for _ in first)
    if not verbose:
        return [(*first, "ratio", "headroom"), (*blank, finest, finest)]
    nulls = ("tensor", "exponent", "rounding", finest, finest)
    return [(*first, "ratio", "ratio", "ratio", "headroom", "odds ratio"), (*blank, *nulls)]


def _last_columns(figures: OverlapFigures, *, verbose: bool) -> Row:
    """Ratios under three nulls; headroom and odds ratio under the finest stratification that is defined."""
    nulls = figures.nulls
    matched = not nulls[MATCHED].reason
    headroom = percent(_headroom(figures))
    if not verbose:
        return times(nulls[MATCHED if matched else PER_TENSOR].ratio), headroom
    ratios = (times(nulls[null].ratio) for null in (PER_TENSOR, MATCHED, ROUNDING))
    return (*ratios, headroom, times(figures.mantel_haenszel[BY_BOTH if matched else BY_TENSOR]))


def _headroom(figures: OverlapFigures) -> float | None:
    nulls = figures.nulls
    return nulls[PER_TENSOR if nulls[MATCHED].reason else MATCHED].headroom


def _consensus(consensus: Consensus) -> list[str]:
    rows: list[Row] = [("in exactly", "coordinates", "independent", "over independent")]
    for k, (observed, expected) in enumerate(zip(consensus.observed, consensus.expected, strict=True)):
        rows.append((counted(k, "mask"), whole(observed), whole(expected), times(ratio(observed, expected))))
    return table(rows)


def _maps(maps: Sequence[ConsensusMap], *, verbose: bool) -> list[str]:
    rows: list[Row] = [("consensus", "in none", "in all", "independent", "rows var/indep.", "columns var/indep.")]
    kept, left_out = folded(
        {tensor.name: tensor for tensor in maps},
        lambda tensor: tensor.rows,
        things="tensors",
        by="rows var/indep.",
        whole=verbose,
    )
    for name, tensor in kept.items():
        numel = sum(tensor.consensus.observed)
        shares = (tensor.consensus.observed[0], tensor.consensus.observed[-1], tensor.consensus.expected[-1])
        cells = (percent(ratio(share, numel)) for share in shares)
        rows.append((name, *cells, times(tensor.rows), times(tensor.columns)))
    return [*table(rows), *left_out]


def _stripes(letters: Sequence[str], masks: Sequence[Mapping[str, Stripes]], *, verbose: bool) -> list[str]:
    row_titles = ("rows var/binomial", "full rows", "empty rows")
    titles = ("stripes", *row_titles, "columns var/binomial", "full columns", "empty columns")
    rows: list[Row] = [titles]
    left_out: list[str] = []
    for letter, mask in zip(letters, masks, strict=True):
        kept, left_out = folded(
            mask, lambda stripes: stripes.rows.dispersion, things="tensors", by="rows var/binomial", whole=verbose
        )
        rows += [(f"{letter} {name}", *_cells(stripes)) for name, stripes in kept.items()]
    return [*table(rows), *left_out]


def _cells(stripes: Stripes) -> Row:
    return tuple(
        cell
        for lines in (stripes.rows, stripes.columns)
        for cell in (times(lines.dispersion), percent(lines.full), percent(lines.empty))
    )


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"M{number + 1}"


_LEGEND = (
    "sd: of the cosine if the sign of every difference were random. By chance: the mean of random sets of as many "
    "channels."
)


def directions(
    named: Sequence[tuple[tuple[str, str], UpdatePair]], by: str | None, *, verbose: bool = False
) -> list[str]:
    """Cosine, orthogonal energy and shared channels of every pair of updates; then cosines by group."""
    rows: list[Row] = [("updates", "cosine", "sd", "orthogonal", "by tensor", "top channels", "by chance")]
    for letters, pair in named:
        channels = (three_digits(pair.channels.jaccard), three_digits(pair.channels.expected))
        shares = " and ".join(map(percent, pair.orthogonal_by_tensor))
        rows.append((" ".join(letters), *_directions_cells(pair.whole), shares, *channels))
    lines = [*table(rows), *paragraph(_LEGEND)]
    for letters, pair in named:
        if pair.whole.nonfinite:
            number = counted(pair.whole.nonfinite, "coordinate")
            lines += paragraph(f"{' '.join(letters)}: {number} left out, because a number is NaN or infinite")
        if pair.channels.left_out:
            number = counted(len(pair.channels.left_out), "MLP")
            lines += paragraph(f"{' '.join(letters)}: {number} left out, because an update does not move them")
        if by:
            groups = layers_in_order(pair.by(by))
            kept, left_out = folded(groups, lambda row: row.cosine, things=f"{by}s", by="cosine", whole=verbose)
            titles: Row = (f"{by}, {' and '.join(letters)}", "coordinates", "cosine", "sd", "orthogonal")
            grouped = [(label or "-", whole(row.numel), *_directions_cells(row)) for label, row in kept.items()]
            lines += ["", *table([titles, *grouped]), *left_out]
    return lines


def _directions_cells(row: Products) -> Row:
    return three_digits(row.cosine), three_digits(row.cosine_sd), percent(row.orthogonal)


def surveyed(result: MaskSurvey, *, verbose: bool = False) -> str:
    """A survey as text: a sentence, and a line on every mask."""
    survey = result.survey
    lines = paragraph(survey.sentence)
    named = {name: number for number, name in enumerate(survey.names)}
    before = [0, *range(len(named) - 1)]
    kept, left_out = folded(
        named, lambda number: _known(survey.headrooms[number, before[number]]),
        things="masks", by="headroom with the mask before", whole=verbose,
    )  # fmt: skip
    rows: list[Row] = [("mask", "most like", "moved", "of it in the next", "with the one before", "with the first")]
    for name, number in kept.items():
        after = min(number + 1, len(named) - 1)
        rows.append(
            (
                name,
                survey.names[survey.nearest[number]],
                percent(survey.sizes[number] / survey.numel),
                percent(_known(survey.coverage[number, after])) if after > number else "",
                percent(_known(survey.headrooms[number, before[number]])) if number else "",
                percent(_known(survey.headrooms[number, 0])) if number else "",
            )
        )
    lines += [
        "",
        *table(rows, right=2),
        *left_out,
        "",
        *paragraph(f"with: headroom over {survey.null}."),
    ]
    lines += noted(survey.notes)
    return "\n".join(map(printable, lines))


def _known(value: float) -> float | None:
    return None if value != value else float(value)

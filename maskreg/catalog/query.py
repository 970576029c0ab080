"""What can be asked of a catalog, and what it answers. :class:`SearchResult` is the table of columns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_type_hints

from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.ref import Ref

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Manifest


Range = tuple[float, float]
"""Lowest and highest value, both included; infinities leave a side open."""

MAX_TEXT = 1000
"""Characters of a search text: databases bound the length of a pattern."""

MAX_LIMIT = 2**63 - 1
"""Databases count in 64 bits."""

KINDS = ("mask", "delta", "baseline", "analysis")
"""Kinds of artifacts."""


def parse_range(text: str) -> Range:
    """Parse ``0.4..0.6``, ``0.4..``, ``..0.6`` or one number; an open end is minus or plus infinity."""
    low, dots, high = text.partition("..")
    try:
        bounds = (float(low or "-inf"), float((high or "inf") if dots else low))
    except ValueError:
        bounds = (math.nan, math.nan)
    if any(map(math.isnan, bounds)) or not (low or high):
        raise UsageError(f"{text!r} is not a range; write 0.4..0.6, 0.4.. or ..0.6")
    if bounds[0] > bounds[1]:
        raise UsageError(f"{text!r} is empty; write the smaller number first")
    return bounds


Value = str | float | datetime | None
"""What results are sorted by; None where an artifact has no such number."""

Filter = Literal["", "equal", "pin", "range"]
"""How a query filters by a column: not at all; by an equal text, with sorting or without; by a range, with sorting."""


def _of_tag(help: str, by: Filter | Literal["sorted"] = "", values: tuple[str, ...] = ()) -> Any:
    return field(metadata={"help": help, "by": by, "table": "refs", "of": None, "values": values})


def _of_artifact(
    help: str,
    by: Filter | Literal["sorted"] = "",
    of: Callable[[Manifest], object] | None = None,
    values: tuple[str, ...] = (),
) -> Any:
    return field(metadata={"help": help, "by": by, "table": "artifacts", "of": of, "values": values})


@dataclass(frozen=True)
class SearchResult:
    """One live tag, with its card and the indexed facts of its artifact: **the table of columns**.

    Each field is a column of the index. What is said of it here feeds the database's tables, the queries, the options
    of ``list`` and ``search``, the API's filters and documents, and the filters of the page. ``of`` takes the value
    from an artifact's manifest.
    """

    project: str = _of_tag("Project that the name is in.", "equal")
    name: str = _of_tag("Name within the project.", "sorted")
    tag: str = _of_tag("Tag of the name.", "pin")
    digest: Digest = _of_artifact("Digest of the artifact.", "pin")  # noqa: RUF009 (frozen)
    kind: str = _of_artifact("Kind of artifact: mask, delta, baseline or analysis.", "equal", lambda of: of.kind, KINDS)
    family: str = _of_tag("Model family, such as qwen3-8b.", "equal")
    method: str = _of_tag("How the target was trained: opd, rlvr, sft or another word.", "equal")
    license: str = _of_tag("SPDX identifier, such as apache-2.0.", "equal")
    signed: str = _of_tag("Whether a key of the project signed the tag: yes or no.", "equal", ("yes", "no"))
    description: str = _of_tag("What the owner says about the artifact.")
    rule: str = _of_artifact("The rule for which coordinates moved.", of=lambda of: of.rule)
    exact: bool = _of_artifact("Whether applying the artifact gives the target's bytes.", of=lambda of: of.exact)
    density: float = _of_artifact(
        "Share of the compared coordinates that moved.", "range", lambda of: of.totals.density
    )
    ffn_density: float | None = _of_artifact(
        "The same within the FFN; null without an FFN.", "range", lambda of: of.totals.ffn.density
    )
    ffn_share: float | None = _of_artifact(
        "Share of the moved coordinates that lies in the FFN.", "range", lambda of: of.totals.ffn.mask_share
    )
    ffn_lift: float | None = _of_artifact(
        "`ffn_share` divided by the FFN's share of the parameters.", "range", lambda of: of.totals.ffn.mask_lift
    )
    rlvr_overlap: float | None = _of_artifact("Latest recorded overlap with the reference mask, as lift.", "range")
    rlvr_against: str | None = _of_artifact("Digest of that reference mask.")
    nnz: int = _of_artifact("Coordinates that moved.", "sorted", lambda of: of.totals.nnz)
    numel: int = _of_artifact("Coordinates that were compared.", "sorted", lambda of: of.totals.numel)
    params: int = _of_artifact("Elements of the source checkpoint.", "sorted", lambda of: of.source.params)
    size: int = _of_artifact("Bytes of all objects.", "sorted", lambda of: of.size)
    source_root: str = _of_artifact("Identity of the source checkpoint.", "pin", lambda of: of.source.root)
    source_hub: str = _of_artifact(
        "Where the source is on the hub; empty if that is not known.", of=lambda of: of.source.hub
    )
    target_root: str = _of_artifact("Identity of the target checkpoint.", of=lambda of: of.target.root)
    by: str = _of_tag("Who set the tag.", "sorted")
    at: datetime = _of_tag("When the tag was set.")  # noqa: RUF009 (frozen)

    @property
    def ref(self) -> Ref:
        """The name as a reference."""
        return Ref(self.project, self.name, self.tag)

    def position(self, sort: str) -> Position:
        """Where it stands in the results of a query that sorts by ``sort``."""
        return Position(getattr(self, COLUMN_OF_SORT[sort]), self.ref)


class Column(NamedTuple):
    """What :class:`SearchResult` says of one column.

    Attributes:
        name: of the field, the column and the filter.
        type: in Python, without None.
        nullable: an artifact can lack the value; then it never matches a range.
        help: one sentence for options and documents.
        by: how a query filters and sorts by it.
        table: where it is: ``refs`` or ``artifacts``.
        of: takes the value from a manifest; None for what comes from elsewhere.
        values: every value that there can be; empty for any.
    """

    name: str
    type: type
    nullable: bool
    help: str
    by: Filter | Literal["sorted"]
    table: str
    of: Callable[[Manifest], object] | None
    values: tuple[str, ...] = ()


def columns_of(row: type[SearchResult]) -> dict[str, Column]:
    """The columns that a class of results has, by name."""
    hints = get_type_hints(row, localns={"Manifest": object})
    columns = {}
    for each in fields(row):
        kinds = get_args(hints[each.name])
        kind = next((k for k in kinds if k is not type(None)), hints[each.name])
        columns[each.name] = Column(each.name, kind, type(None) in kinds, **each.metadata)
    return columns


COLUMNS = columns_of(SearchResult)
"""Every column by name."""

EQUAL_KEYS = tuple(column.name for column in COLUMNS.values() if column.by == "equal")
"""Filters that match a text exactly, and that results can be sorted by."""

PIN_KEYS = tuple(column.name for column in COLUMNS.values() if column.by == "pin")
"""Filters that match a text exactly."""

RANGE_KEYS = tuple(column.name for column in COLUMNS.values() if column.by == "range")
"""Filters that match a range of numbers."""

COLUMN_OF_SORT = {
    "created": "at",
    **{column.name: column.name for column in COLUMNS.values() if column.by in ("equal", "range", "sorted")},
}
"""Values of ``Query.sort``, and the columns that they mean."""


@dataclass(frozen=True)
class Position:
    """A place in the order of a query's results; it stays where it is when results come and go."""

    value: Value
    ref: Ref


@dataclass(frozen=True, init=False)
class Query:
    """A search over live tags; every filter that is set must match.

    Attributes:
        text: words, each of which begins one of the name, project, family or description, in any case, as
            :mod:`maskreg.catalog.rows` has it; a word of four or more hex digits can also begin the digest.
        filters: a text or a :data:`Range` by column; ``Query(family="qwen3-8b", density=(0.4, 0.6))`` sets two. An
            artifact without a number never matches a range.
        projects: one of these; None for any project.
        hidden: none of these.
        sort: one of ``COLUMN_OF_SORT``; artifacts without that number come last in either order.
        descending: largest, newest or last in the alphabet first.
        limit: at most this many.
        after: only what comes behind this in the order.
        offset: skip this many of them.
    """

    text: str
    filters: Mapping[str, str | Range]
    projects: frozenset[str] | None
    hidden: frozenset[str]
    sort: str
    descending: bool
    limit: int | None
    after: Position | None
    offset: int

    def __init__(
        self,
        text: str = "",
        *,
        filters: Mapping[str, str | Range] | None = None,
        projects: frozenset[str] | None = None,
        hidden: frozenset[str] = frozenset(),
        sort: str = "created",
        descending: bool = True,
        limit: int | None = None,
        after: Position | None = None,
        offset: int = 0,
        **columns: str | Range | None,
    ) -> None:
        """Filters are columns by name; None and the empty text set none."""
        given = {**(filters or {}), **columns}
        if unknown := given.keys() - {*EQUAL_KEYS, *PIN_KEYS, *RANGE_KEYS}:
            raise UsageError(f"cannot filter by {', '.join(sorted(unknown))}")
        # In one order, so that equal queries have one text.
        chosen = {key: value for key in COLUMNS if (value := given.get(key)) not in (None, "")}
        vars(self).update(text=text, filters=chosen, projects=projects, hidden=hidden)
        vars(self).update(sort=sort, descending=descending, limit=limit, after=after, offset=offset)

    def check(self) -> None:
        """Refuse a query that no catalog can answer."""
        if self.sort not in COLUMN_OF_SORT:
            raise UsageError(f"cannot sort by {self.sort!r}", hint=f"sort by one of: {', '.join(COLUMN_OF_SORT)}")
        if self.limit is not None and self.limit < 0:
            raise UsageError(f"the limit {self.limit} is negative")
        if self.limit is not None and self.limit > MAX_LIMIT:
            raise UsageError(f"the limit {self.limit} is too large", hint="leave the limit out")
        if self.offset < 0 or (self.offset and self.limit is None):
            raise UsageError(f"the offset {self.offset} is negative, or without a limit")
        if len(self.text) > MAX_TEXT:
            raise UsageError(f"the search text has {len(self.text)} characters; the limit is {MAX_TEXT}")
        for key, value in self.filters.items():
            if key not in RANGE_KEYS and not isinstance(value, str):
                raise UsageError(f"the filter {key} matches a text, not {value!r}")
            is_pair = isinstance(value, tuple) and len(value) == 2
            if key in RANGE_KEYS and not (is_pair and all(isinstance(end, int | float) for end in value)):
                raise UsageError(f"the filter {key} matches a range, (lowest, highest), not {value!r}")
        for key, (low, high) in self.ranges.items():
            if math.isnan(low) or math.isnan(high) or low > high:
                raise UsageError(f"{key} {low}..{high} is not a range", hint="write LOW..HIGH")

    @property
    def texts(self) -> dict[str, str]:
        """Filters that match a text exactly."""
        return {key: str(value) for key, value in self.filters.items() if key not in RANGE_KEYS}

    @property
    def ranges(self) -> dict[str, Range]:
        """Filters that match a range of numbers."""
        return {key: value for key, value in self.filters.items() if not isinstance(value, str)}


class Answer(NamedTuple):
    """What a catalog answers to a query.

    Attributes:
        results: live refs that match, in the query's order.
        unindexed: live refs, matching or not, whose artifact is not in the index; in the order of their names.
        numbers: number of the indexed entry of every ref, removed refs included.
    """

    results: list[SearchResult]
    unindexed: list[tuple[Ref, Digest]]
    numbers: dict[Ref, int]


MOST_VALUES = 12
"""Values of a column that are counted, the most frequent ones."""

SAMPLE = 5_000
"""Of more tags than this, a sample of about so many is counted, unless few tags or few artifacts match."""

BARS = 24
"""Bars of a histogram."""


class Histogram(NamedTuple):
    """How many names have a number in each of :data:`BARS` equal parts of the range from the lowest to the highest."""

    low: float
    high: float
    bars: list[int]


class Counts(NamedTuple):
    """How many names there are for a query.

    Attributes:
        total: that match the query.
        values: names by value of each column that filters by an equal text, the most frequent first; the column's own
            filter is left out, so that a count is what choosing the value would leave.
        histograms: the same for columns of numbers; a column in which no name has a number is left out.
        estimates: columns that are estimated from a sample, to two digits, and ``total`` if that is.
    """

    total: int
    values: dict[str, dict[str, int]]
    histograms: dict[str, Histogram]
    estimates: set[str]


RLVR_OVERLAP = "rlvr_overlap"
"""The metric whose latest value over the whole mask becomes searchable."""

OVERLAP = "overlap"
"""The lift of one mask over uniform random, against another mask."""

SEED_OVERLAP = "seed_overlap"
"""The same between two runs of one recipe that differ only in their seed: the ceiling for other overlaps."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Measurement:
    """One number that was measured on an artifact.

    Attributes:
        digest: the artifact.
        metric: what was measured, such as ``overlap`` or ``rlvr_overlap``.
        value: the number, finite.
        against: digest of the other artifact, or a baseline's text; empty when there is none.
        by_group: the tensors that it was measured on, such as ``ffn in layers 0-11``; empty for the whole mask.
        detail: anything else worth keeping, as JSON.
        by: who measured.
        at: when (aware).
        id: number of the row; 0 before it is recorded.
    """

    digest: Digest
    metric: str
    value: float
    against: str = ""
    by_group: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""
    at: datetime = field(default_factory=_now)
    id: int = 0

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise UsageError(f"{self.metric} is {self.value}: only a finite number can be recorded")
        _check(self.detail, self.at)


@dataclass(frozen=True)
class Event:
    """One event of the audit log.

    Attributes:
        action: such as ``publish`` or ``gc``.
        subject: the ref, digest or key it happened to.
        by: who did it.
        detail: anything else worth keeping, as JSON.
        at: when (aware).
        id: number of the row; 0 before it is logged.
    """

    action: str
    subject: str
    by: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    at: datetime = field(default_factory=_now)
    id: int = 0

    def __post_init__(self) -> None:
        _check(self.detail, self.at)


def _check(detail: Mapping[str, Any], at: datetime) -> None:
    if at.tzinfo is None:
        raise UsageError(f"{at} has no time zone")
    try:
        json.dumps(dict(detail), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the detail cannot be written as JSON: {error}") from error

"""What can be asked of a catalog, and what it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.ref import Ref

Range = tuple[float, float]
"""Lowest and highest value, both included; infinities leave a side open."""


def parse_range(text: str) -> Range:
    """Parse ``0.4..0.6``, ``0.4..``, ``..0.6`` or one number; an open end is minus or plus infinity.

    Raises:
        UsageError: none of these, or the lower number is not the first.
    """
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


MAX_TEXT = 1000
"""Characters of a search text: databases bound the length of a pattern."""

MAX_LIMIT = 2**63 - 1
"""Databases count in 64 bits."""

EQUAL_KEYS = ("project", "family", "method", "license", "kind")
"""Fields of a query that match a text exactly, and that results can be sorted by."""

PIN_KEYS = ("tag", "source_root", "digest")
"""Fields of a query that match a text exactly."""

RANGE_KEYS = ("density", "ffn_density", "ffn_share", "ffn_lift", "rlvr_overlap")
"""Fields of a query that match a range of numbers."""

SORT_KEYS = ("created", "name", "by", *EQUAL_KEYS, *RANGE_KEYS, "size", "params", "nnz", "numel")
"""Values of ``Query.sort``."""


Value = str | float | datetime | None
"""What results are sorted by; None where an artifact has no such number."""


@dataclass(frozen=True)
class Position:
    """A place in the order of a query's results; it stays where it is when results come and go.

    Attributes:
        value: what the result before it is sorted by.
        ref: the name of that result, which decides among equal values.
    """

    value: Value
    ref: Ref


@dataclass(frozen=True)
class Query:
    """A search over live refs; every field that is set must match.

    Attributes:
        text: words, each of which begins one of the name, project, family or description, in any case, as
            :mod:`maskreg.catalog.tables.words` has it; a word of four or more hex digits may also begin the digest.
        project, family, method, license, kind, tag: equal to.
        source_root: identity of the source checkpoint, equal to.
        digest: of the artifact, equal to.
        projects: one of these; None for any project.
        hidden: none of these.
        density, ffn_density, ffn_share, ffn_lift, rlvr_overlap: within, both ends included; an artifact
            without that number never matches.
        sort: one of ``SORT_KEYS``; artifacts without that number come last in either order.
        descending: largest, newest or last in the alphabet first.
        limit: at most this many.
        after: only what comes behind this in the order.
    """

    text: str = ""
    project: str = ""
    family: str = ""
    method: str = ""
    license: str = ""
    density: Range | None = None
    ffn_density: Range | None = None
    ffn_share: Range | None = None
    ffn_lift: Range | None = None
    rlvr_overlap: Range | None = None
    kind: str = ""
    tag: str = ""
    source_root: str = ""
    digest: str = ""
    projects: frozenset[str] | None = None
    hidden: frozenset[str] = frozenset()
    sort: str = "created"
    descending: bool = True
    limit: int | None = None
    after: Position | None = None

    def check(self) -> None:
        """Refuse a query that no catalog can answer.

        Raises:
            UsageError: an unknown sort key, an empty range, a limit that is negative or too large, a text that is too
                long.
        """
        if self.sort not in SORT_KEYS:
            raise UsageError(f"cannot sort by {self.sort!r}", hint=f"sort by one of: {', '.join(SORT_KEYS)}")
        if self.limit is not None and self.limit < 0:
            raise UsageError(f"the limit {self.limit} is negative")
        if self.limit is not None and self.limit > MAX_LIMIT:
            raise UsageError(f"the limit {self.limit} is too large", hint="leave the limit out")
        if len(self.text) > MAX_TEXT:
            raise UsageError(f"the search text has {len(self.text)} characters; the limit is {MAX_TEXT}")
        for key in RANGE_KEYS:
            bounds: Range | None = getattr(self, key)
            if bounds is not None and (any(map(math.isnan, bounds)) or bounds[0] > bounds[1]):
                raise UsageError(f"{key} {bounds[0]}..{bounds[1]} is not a range", hint="write LOW..HIGH")


@dataclass(frozen=True)
class SearchResult:
    """One live ref, with its card and the indexed facts of its artifact.

    Attributes:
        at: when the tag was set (aware, UTC).
        density: moved / compared coordinates.
        ffn_density: the same within the FFN; None without an FFN.
        ffn_share: part of the moved coordinates that lies in the FFN.
        ffn_lift: ffn_share / the FFN's share of the compared coordinates.
        rlvr_overlap: latest recorded overlap with a reference mask, whose digest is ``rlvr_against``.
        params: elements of the source checkpoint.
        size: bytes of all objects.
    """

    project: str
    name: str
    tag: str
    digest: Digest
    kind: str
    family: str
    method: str
    license: str
    description: str
    rule: str
    exact: bool
    density: float
    ffn_density: float | None
    ffn_share: float | None
    ffn_lift: float | None
    rlvr_overlap: float | None
    rlvr_against: str | None
    nnz: int
    numel: int
    params: int
    size: int
    source_root: str
    source_hub: str
    target_root: str
    by: str
    at: datetime

    @property
    def ref(self) -> Ref:
        """The name as a reference."""
        return Ref(self.project, self.name, self.tag)

    def position(self, sort: str) -> Position:
        """Where it stands in the results of a query.

        Args:
            sort: what the query sorts by.
        """
        value: Value = getattr(self, "at" if sort == "created" else sort)
        return Position(value, self.ref)


LARGE = 10_000
"""Names up to which a search compares every name of the index with the store, and says which it lacks."""


class Answer(NamedTuple):
    """What a catalog answers to a query.

    Attributes:
        results: live refs that match, in the query's order.
        unindexed: live refs that match or not, whose artifact is not in the index; in the order of their names. Of an
            index of more than ``LARGE`` refs nobody knows in time.
        unread: keys of the store's ref entries that could not be read when the index was filled, and why.
        numbers: number of the indexed entry of every ref, removed ones included; None where there are more than
            ``LARGE``.
    """

    results: list[SearchResult]
    unindexed: list[tuple[Ref, Digest]]
    unread: dict[str, str]
    numbers: dict[Ref, int] | None

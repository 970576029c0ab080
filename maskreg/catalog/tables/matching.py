"""Searching rows that were read and checked, without a database whose damaged index could hide one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import itemgetter

from maskreg.catalog.query import EQUAL_KEYS, PIN_KEYS, RANGE_KEYS, Answer, Position, Query, SearchResult
from maskreg.catalog.tables.columns import Row, clean
from maskreg.catalog.tables.rows import numbers_of, pair_of
from maskreg.catalog.tables.words import beginning, words_of
from maskreg.digest import Digest

_DIGEST_PREFIX = re.compile(r"(?:sha256:)?([0-9a-f]{4,64})")
_KEY = itemgetter("project", "name", "tag")
_FIELDS = tuple(SearchResult.__dataclass_fields__)


def digest_prefix(word: str) -> str:
    """The beginning of digests that a word of a search means; empty when it means none."""
    match = _DIGEST_PREFIX.fullmatch(word)
    return f"sha256:{match[1]}" if match else ""


def answer_from(refs: Sequence[Row], artifacts: Sequence[Row], query: Query, unread: dict[str, str]) -> Answer:
    """What a catalog of these rows answers; ``unread`` is passed on.

    Raises:
        UsageError: the query is malformed.
        ValueError: two rows have one key.
    """
    query.check()
    known = {row["digest"]: row for row in artifacts}
    if len(known) < len(artifacts) or len(set(map(_KEY, refs))) < len(refs):
        raise ValueError("two rows have one key")
    live = [row for row in refs if not row["deleted"]]
    lacking = sorted(pair_of(row) for row in live if row["digest"] not in known)
    # The columns that both have are the digest, which is the same, and the seal, which is no field.
    pairs = ({**known[row["digest"]], **row} for row in live if row["digest"] in known)
    return Answer(list(_results(pairs, query)), lacking, unread, numbers_of(refs))


def measured(rows: Iterable[Row], digest: str, metrics: Collection[str], against: str) -> list[Row]:
    """The rows of an artifact's measurements; arguments as for :meth:`maskreg.catalog.base.Catalog.measurements`."""
    return [
        row
        for row in rows
        if row["digest"] == digest and (not metrics or row["metric"] in metrics) and against in ("", row["against"])
    ]


def _results(rows: Iterable[Row], query: Query) -> Iterator[SearchResult]:
    tests = list(_tests(query))
    key = "at" if query.sort == "created" else query.sort
    if query.after is not None:
        tests.append(_behind(key, query.after, descending=query.descending))
    matches = sorted((row for row in rows if all(test(row) for test in tests)), key=_KEY)
    # Stable, so that ties stay in the order of their names; a row without the value comes last in either order.
    first = sorted((row for row in matches if row[key] is not None), key=itemgetter(key), reverse=query.descending)
    last = [row for row in matches if row[key] is None]
    for row in [*first, *last][: query.limit]:
        yield SearchResult(**{**{name: row[name] for name in _FIELDS}, "digest": Digest(row["digest"])})


def _behind(key: str, after: Position, *, descending: bool) -> Callable[[Row], bool]:
    name = (after.ref.project, after.ref.name, after.ref.tag)

    def is_behind(row: Row) -> bool:
        value = row[key]
        if value == after.value:
            return bool(_KEY(row) > name)
        if value is None or after.value is None:
            return value is None
        return bool(value < after.value if descending else value > after.value)

    return is_behind


def _tests(query: Query) -> Iterator[Callable[[Row], bool]]:
    for word in words_of(query.text):
        yield _has(word)
    for key in (*EQUAL_KEYS, *PIN_KEYS):
        if value := getattr(query, key):
            yield _equals(key, clean(value))
    if (projects := query.projects) is not None:
        yield lambda row: row["project"] in projects
    if query.hidden:
        yield lambda row: row["project"] not in query.hidden
    for key in RANGE_KEYS:
        if (bounds := getattr(query, key)) is not None:
            yield _within(key, *bounds)


def _has(word: str) -> Callable[[Row], bool]:
    prefix, searched = digest_prefix(word), beginning(word)
    return lambda row: searched in row["words"] or bool(prefix and row["digest"].startswith(prefix))


def _equals(key: str, value: str) -> Callable[[Row], bool]:
    return lambda row: bool(row[key] == value)


def _within(key: str, low: float, high: float) -> Callable[[Row], bool]:
    # An artifact without the number is in no range, not even in one that is open at both ends.
    return lambda row: row[key] is not None and low <= row[key] <= high

"""The SELECTs that answer a search.

To build a statement costs more than to run it, so those of searches are built once for each *shape*: which fields are
set, how many words, which order. The values come in as parameters::

    Query(family="qwen3-8b", text="math code")     shape: family, two words; newest first
    Query(family="llama3-8b", text="long chat")    the same shape, so the same statement
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import BindParameter, ColumnElement, Connection, Select, and_, bindparam, or_, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from maskreg.catalog.query import EQUAL_KEYS, PIN_KEYS, RANGE_KEYS, SORT_KEYS, Query, SearchResult
from maskreg.catalog.sql.models import ArtifactRow, EventRow, RefRow
from maskreg.catalog.sql.words import HasWord, word_values
from maskreg.catalog.tables.matching import digest_prefix
from maskreg.catalog.tables.words import words_of
from maskreg.digest import Digest
from maskreg.ref import DEFAULT_PROJECT

_REF_FIELDS = ("project", "name", "tag", "family", "method", "license", "description", "by", "at")


def _column(name: str) -> InstrumentedAttribute[Any]:
    column: InstrumentedAttribute[Any] = getattr(RefRow if name in _REF_FIELDS else ArtifactRow, name)
    return column


_KEY: list[InstrumentedAttribute[Any]] = [RefRow.project, RefRow.name, RefRow.tag]
_FIELDS = tuple(map(_column, SearchResult.__dataclass_fields__))
_EQUAL = {key: _column(key) for key in (*EQUAL_KEYS, *PIN_KEYS)}
_RANGES = {key: _column(key) for key in RANGE_KEYS}
_SORTS = {key: RefRow.at if key == "created" else _column(key) for key in SORT_KEYS}
_DIGEST = list(SearchResult.__dataclass_fields__).index("digest")

Values: TypeAlias = "dict[str, Any]"
"""What a statement's parameters are in one search."""

_SHAPES = 256


class _Shape(NamedTuple):
    # What of a query decides about its statements.
    words: tuple[bool, ...]  # for each word, whether it may begin a digest
    equal: tuple[str, ...]
    ranges: tuple[str, ...]
    of_projects: bool
    hides: bool
    sort: str
    descending: bool
    is_limited: bool
    after: Literal["", "null", "value"]


def matches(connection: Connection, query: Query) -> list[SearchResult]:
    """Live refs that match, in the query's order, by several SELECTs where an index then gives each of them in order.

    Descending order with NULL last is that of no index, so that a database sorts everything to find the first rows.
    Apart from each other, rows with a value and those without are in an index.

    Raises:
        UsageError: the query is malformed.
    """
    query.check()
    rows: list[SearchResult] = []
    values = _values(query) | word_values(connection, words_of(query.text), query.project)
    for part in _parts(_shape(query)):
        if query.limit is None or len(rows) < query.limit:
            rows += map(_result, connection.execute(part, values))
    return rows[: query.limit]


def _result(row: Iterable[Any]) -> SearchResult:
    # By position: the columns are in the order of the fields.
    values = list(row)
    values[_DIGEST] = Digest(values[_DIGEST])
    return SearchResult(*values)


@lru_cache(_SHAPES)
def _whole(shape: _Shape) -> Select[Any]:
    column = _SORTS[shape.sort]
    order = column.desc() if shape.descending else column.asc()
    # PostgreSQL uses an index for the order only where that says the same of NULL.
    rows = _live(shape).order_by(order.nulls_last() if column.nullable else order)
    # Databases return ties in any order, which may differ from call to call.
    rows = rows.order_by(*_KEY)
    return rows.where(_behind(column, shape)) if shape.after else rows


@lru_cache(_SHAPES)
def _parts(shape: _Shape) -> tuple[Select[Any], ...]:
    column = _SORTS[shape.sort]
    if not column.nullable or not shape.descending or not shape.is_limited:
        return (_whole(shape),)
    without = _live(shape).where(column.is_(None)).order_by(*_KEY)
    if shape.after == "null":
        return (without.where(_behind(column, shape)),)
    valued = _live(shape).where(column.is_not(None)).order_by(column.desc(), *_KEY)
    return (valued.where(_behind(column, shape, nulls=False)) if shape.after else valued, without)


def _live(shape: _Shape) -> Select[Any]:
    rows = select(*_FIELDS).join(ArtifactRow, ArtifactRow.digest == RefRow.digest)
    rows = rows.where(RefRow.deleted.is_(False), *_conditions(shape))
    return rows.limit(bindparam("limit", type_=RefRow.n.type)) if shape.is_limited else rows


def _shape(query: Query) -> _Shape:
    after = query.after
    return _Shape(
        words=tuple(bool(digest_prefix(word)) for word in words_of(query.text)),
        equal=tuple(key for key in _EQUAL if getattr(query, key)),
        ranges=tuple(key for key in _RANGES if getattr(query, key) is not None),
        of_projects=query.projects is not None,
        hides=bool(query.hidden),
        sort=query.sort,
        descending=query.descending,
        is_limited=query.limit is not None,
        after="" if after is None else "null" if after.value is None else "value",
    )


def _values(query: Query) -> Values:
    values: Values = {key: getattr(query, key) for key in _EQUAL}
    for number, word in enumerate(words_of(query.text)):
        values[f"prefix_{number}"] = f"{digest_prefix(word)}%"
    for key in _RANGES:
        if (bounds := getattr(query, key)) is not None:
            values[f"{key}_low"], values[f"{key}_high"] = bounds
    values |= {"projects": sorted(query.projects or ()), "hidden": sorted(query.hidden), "limit": query.limit}
    if (after := query.after) is not None:
        values["after"] = after.value
        values |= {f"after_{part.key}": getattr(after.ref, part.key) for part in _KEY}
    return values


def _value(name: str, column: InstrumentedAttribute[Any], *, expanding: bool = False) -> BindParameter[Any]:
    return bindparam(name, type_=column.type, expanding=expanding)


def unindexed() -> Select[Any]:
    """The SELECT of live refs whose artifact is not in the index."""
    return (
        select(*_KEY, RefRow.digest)
        .outerjoin(ArtifactRow, ArtifactRow.digest == RefRow.digest)
        .where(RefRow.deleted.is_(False), ArtifactRow.digest.is_(None))
        .order_by(*_KEY)
    )


def events(
    *, subject: str, action: str, by: str, project: str | None, since: datetime | None, before: int | None
) -> Select[Any]:
    """The SELECT of events, newest first; arguments as for :meth:`maskreg.catalog.base.Catalog.events`."""
    rows = select(EventRow.__table__).order_by(EventRow.id.desc())
    for column, value in ((EventRow.subject, subject), (EventRow.action, action), (EventRow.by, by)):
        rows = rows.where(column == value) if value else rows
    if project is not None:
        rows = rows.where(_in_project(project))
    if since is not None:
        rows = rows.where(EventRow.at >= since)
    return rows if before is None else rows.where(EventRow.id < before)


def _in_project(project: str) -> ColumnElement[bool]:
    # A subject is a reference as it is written: team/opd:v1, and opd:v1 in the default project.
    if project == DEFAULT_PROJECT:
        return and_(~EventRow.subject.contains("/"), ~EventRow.subject.startswith("sha256:"))
    # What begins with "team/" lies between it and "team0", since "0" follows "/": that is what an index can find.
    return and_(EventRow.subject >= f"{project}/", EventRow.subject < f"{project}0")


def _behind(column: InstrumentedAttribute[Any], shape: _Shape, *, nulls: bool = True) -> ColumnElement[bool]:
    # Of names in ascending order, after (b, ref 2): name >= b AND (name > b OR ref > 2), or NULL, which comes last.
    named = tuple_(*_KEY) > tuple_(*(_value(f"after_{part.key}", part) for part in _KEY))
    if shape.after == "null":
        return and_(column.is_(None), named)
    after = _value("after", column)
    # The first condition says nothing that the second does not, but an index can begin there.
    first = column <= after if shape.descending else column >= after
    behind = and_(first, or_(column < after if shape.descending else column > after, named))
    return or_(behind, column.is_(None)) if column.nullable and nulls else behind


def _conditions(shape: _Shape) -> list[ColumnElement[bool]]:
    conditions = [_word(number, is_prefix) for number, is_prefix in enumerate(shape.words)]
    conditions += [_EQUAL[key] == _value(key, _EQUAL[key]) for key in shape.equal]
    if shape.of_projects:
        conditions.append(RefRow.project.in_(_value("projects", RefRow.project, expanding=True)))
    if shape.hides:
        conditions.append(RefRow.project.not_in(_value("hidden", RefRow.project, expanding=True)))
    for key in shape.ranges:
        column = _RANGES[key]
        # NULL is in no range, not even in one that is open at both ends. Saying so would mislead PostgreSQL, which then
        # takes the share of NULL off twice: where one row of ten has a value, it expects a tenth of the rows.
        conditions.append(column.between(_value(f"{key}_low", column), _value(f"{key}_high", column)))
    return conditions


def _word(number: int, is_prefix: bool) -> ColumnElement[bool]:
    matches = HasWord(number)
    begins = RefRow.digest.like(_value(f"prefix_{number}", RefRow.digest))
    return or_(matches, begins) if is_prefix else matches

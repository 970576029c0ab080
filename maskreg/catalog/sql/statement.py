"""The one SELECT that answers a search."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Result, Select, and_, literal, or_, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from maskreg.catalog.query import EQUAL_KEYS, PIN_KEYS, RANGE_KEYS, SORT_KEYS, Position, Query, Range, SearchResult
from maskreg.catalog.sql.models import ArtifactRow, EventRow, RefRow
from maskreg.catalog.tables.matching import digest_prefix, words_of
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


def statement(query: Query) -> Select[Any]:
    """The SELECT whose rows are the fields of ``SearchResult``.

    Raises:
        UsageError: the query is malformed.
    """
    query.check()
    column = _SORTS[query.sort]
    order = column.desc() if query.descending else column.asc()
    rows = (
        select(*_FIELDS)
        .join(ArtifactRow, ArtifactRow.digest == RefRow.digest)
        .where(RefRow.deleted.is_(False), *_conditions(query))
        # PostgreSQL uses an index for the order only where that says the same of NULL.
        .order_by(order.nulls_last() if column.nullable else order)
        # Databases return ties in any order, which may differ from call to call.
        .order_by(*_KEY)
    )
    if query.after is not None:
        rows = rows.where(_behind(column, query.after, descending=query.descending))
    return rows if query.limit is None else rows.limit(query.limit)


def parts_of(query: Query) -> list[Select[Any]]:
    """SELECTs whose rows, one after another, are those of :func:`statement`; an index gives each of them in order.

    Descending order with NULL last is that of no index, so that a database sorts everything to find the first rows.
    Apart from each other, rows with a value and those without are in an index.

    Raises:
        UsageError: the query is malformed.
    """
    query.check()
    column = _SORTS[query.sort]
    if not column.nullable or not query.descending or query.limit is None:
        return [statement(query)]
    rows = select(*_FIELDS).join(ArtifactRow, ArtifactRow.digest == RefRow.digest)
    rows = rows.where(RefRow.deleted.is_(False), *_conditions(query)).limit(query.limit)
    without = rows.where(column.is_(None)).order_by(*_KEY)
    after = query.after
    if after is not None and after.value is None:
        return [without.where(_behind(column, after, descending=True))]
    valued = rows.where(column.is_not(None)).order_by(column.desc(), *_KEY)
    if after is not None:
        valued = valued.where(_behind(column, after, descending=True, nulls=False))
    return [valued, without]


def results(rows: Result[Any]) -> list[SearchResult]:
    """The rows of :func:`statement` as results."""
    return [SearchResult(**{**row, "digest": Digest(row["digest"])}) for row in rows.mappings()]


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


def _behind(
    column: InstrumentedAttribute[Any], after: Position, *, descending: bool, nulls: bool = True
) -> ColumnElement[bool]:
    # Of names in ascending order, after (b, ref 2): name >= b AND (name > b OR ref > 2), or NULL, which comes last.
    named = tuple_(*_KEY) > tuple_(*map(literal, (after.ref.project, after.ref.name, after.ref.tag)))
    if after.value is None:
        return and_(column.is_(None), named)
    # The first condition says nothing that the second does not, but an index can begin there.
    first = column <= after.value if descending else column >= after.value
    behind = and_(first, or_(column < after.value if descending else column > after.value, named))
    return or_(behind, column.is_(None)) if column.nullable and nulls else behind


def _conditions(query: Query) -> list[ColumnElement[bool]]:
    conditions = [_word(word) for word in words_of(query.text)]
    conditions += [column == value for key, column in _EQUAL.items() if (value := getattr(query, key))]
    if query.projects is not None:
        conditions.append(RefRow.project.in_(sorted(query.projects)))
    if query.hidden:
        conditions.append(RefRow.project.not_in(sorted(query.hidden)))
    for key, column in _RANGES.items():
        bounds: Range | None = getattr(query, key)
        if bounds is not None:
            # NULL is in no range, not even in one that is open at both ends.
            conditions.append(and_(column.is_not(None), column.between(*bounds)))
    return conditions


def _word(word: str) -> ColumnElement[bool]:
    matches = RefRow.folded.contains(word, autoescape=True)
    prefix = digest_prefix(word)
    return or_(matches, RefRow.digest.startswith(prefix)) if prefix else matches

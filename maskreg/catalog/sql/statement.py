"""The one SELECT that answers a search."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Result, Select, and_, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from maskreg.catalog.query import EQUAL_KEYS, PIN_KEYS, RANGE_KEYS, SORT_KEYS, Query, Range, SearchResult
from maskreg.catalog.sql.models import ArtifactRow, RefRow
from maskreg.catalog.tables.matching import digest_prefix, words_of
from maskreg.digest import Digest

_REF_FIELDS = ("project", "name", "tag", "family", "method", "license", "description", "by", "at")


def _column(name: str) -> InstrumentedAttribute[Any]:
    column: InstrumentedAttribute[Any] = getattr(RefRow if name in _REF_FIELDS else ArtifactRow, name)
    return column


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
    order = _SORTS[query.sort]
    rows = (
        select(*_FIELDS)
        .join(ArtifactRow, ArtifactRow.digest == RefRow.digest)
        .where(RefRow.deleted.is_(False), *_conditions(query))
        .order_by(order.desc().nulls_last() if query.descending else order.asc().nulls_last())
        # Databases return ties in any order, which may differ from call to call.
        .order_by(RefRow.project, RefRow.name, RefRow.tag)
    )
    return rows if query.limit is None else rows.limit(query.limit)


def results(rows: Result[Any]) -> list[SearchResult]:
    """The rows of :func:`statement` as results."""
    return [SearchResult(**{**row, "digest": Digest(row["digest"])}) for row in rows.mappings()]


def unindexed() -> Select[Any]:
    """The SELECT of live refs whose artifact is not in the index."""
    key: list[InstrumentedAttribute[Any]] = [RefRow.project, RefRow.name, RefRow.tag]
    return (
        select(*key, RefRow.digest)
        .outerjoin(ArtifactRow, ArtifactRow.digest == RefRow.digest)
        .where(RefRow.deleted.is_(False), ArtifactRow.digest.is_(None))
        .order_by(*key)
    )


def _conditions(query: Query) -> list[ColumnElement[bool]]:
    conditions = [_word(word) for word in words_of(query.text)]
    conditions += [column == value for key, column in _EQUAL.items() if (value := getattr(query, key))]
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

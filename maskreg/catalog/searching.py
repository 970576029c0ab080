"""The SELECTs that answer a search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Select, and_, bindparam, func, or_, select, text, tuple_

from maskreg.catalog.models import ARTIFACTS, REFS, WORD_LEXEMES
from maskreg.catalog.query import COLUMN_OF_SORT, COLUMNS, Query, SearchResult
from maskreg.catalog.rows import result_of
from maskreg.catalog.words import MAX_WORD, SEPARATOR, digest_prefix, words_of

KEY = (REFS.c.project, REFS.c.name, REFS.c.tag)
"""The columns that identify a ref."""

_QUOTED = str.maketrans({"'": "''", "\\": "\\\\"})


def column(name: str) -> Column[Any]:
    """The column of a name in the table of columns; the digest is the ref's."""
    found: Column[Any] = REFS.c[name] if name in REFS.c else ARTIFACTS.c[name]
    return found


def matches(connection: Connection, query: Query) -> list[SearchResult]:
    """Live refs that match, in the query's order.

    Descending order with NULL last is the order of no index, so that a database sorts everything to find the first
    rows. The rows with a value and the rows without are in an index each: two SELECTs, the second only where the first
    did not fill the limit.
    """
    results: list[SearchResult] = []
    for rows in _selects(query, connection.dialect.name):
        if query.limit is None or len(results) < query.limit:
            results += map(result_of, connection.execute(rows).mappings())
    return results[: query.limit]


def unindexed() -> Select[Any]:
    """The SELECT of live refs whose artifact is not in the index."""
    return (
        select(*KEY, REFS.c.digest)
        .outerjoin(ARTIFACTS, ARTIFACTS.c.digest == REFS.c.digest)
        .where(REFS.c.deleted.is_(False), ARTIFACTS.c.digest.is_(None))
        .order_by(*KEY)
    )


def _selects(query: Query, dialect: str) -> Iterator[Select[Any]]:
    live = (
        select(*(column(name) for name in COLUMNS))
        .join(ARTIFACTS, ARTIFACTS.c.digest == REFS.c.digest)
        .where(REFS.c.deleted.is_(False), *_conditions(query, dialect))
        .limit(query.limit)
    )
    by, after = column(COLUMN_OF_SORT[query.sort]), query.after
    # Databases return ties in any order, which may differ from call to call.
    named: Any = after and tuple_(*KEY) > tuple_(after.ref.project, after.ref.name, after.ref.tag)
    if by.nullable and query.descending and query.limit is not None:
        if after is None or after.value is not None:
            valued = live.where(by.is_not(None)).order_by(by.desc(), *KEY)
            yield valued if after is None else valued.where(_behind(by, query, named))
        without = live.where(by.is_(None)).order_by(*KEY)
        yield without if after is None or after.value is not None else without.where(named)
        return
    order = by.desc() if query.descending else by.asc()
    # PostgreSQL uses an index for the order only where that says the same of NULL.
    rows = live.order_by(order.nulls_last() if by.nullable else order, *KEY)
    if after is None:
        yield rows
    elif after.value is None:
        yield rows.where(by.is_(None), named)
    else:
        behind = _behind(by, query, named)
        yield rows.where(or_(behind, by.is_(None)) if by.nullable else behind)


def _behind(by: Column[Any], query: Query, named: Any) -> ColumnElement[bool]:
    # Of names in ascending order, after (b, ref 2): name >= b AND (name > b OR ref > 2).
    assert query.after is not None
    after = query.after.value
    # The first condition says nothing that the second does not, but an index can begin there.
    first = by <= after if query.descending else by >= after
    return and_(first, or_(by < after if query.descending else by > after, named))


def _conditions(query: Query, dialect: str) -> Iterator[ColumnElement[bool]]:
    for word in words_of(query.text):
        found = _has_word(word, dialect)
        prefix = digest_prefix(word)
        yield or_(found, REFS.c.digest.like(f"{prefix}%")) if prefix else found
    for key, value in query.texts.items():
        yield column(key) == value
    if query.projects is not None:
        yield REFS.c.project.in_(sorted(query.projects))
    if query.hidden:
        yield REFS.c.project.not_in(sorted(query.hidden))
    for key, (low, high) in query.ranges.items():
        # NULL is in no range, not even in one that is open at both ends. Saying so would mislead PostgreSQL, which then
        # takes the share of NULL off twice: where one row of ten has a value, it expects a tenth of the rows.
        yield column(key).between(low, high)


def _has_word(word: str, dialect: str) -> ColumnElement[bool]:
    begins = SEPARATOR + word[:MAX_WORD]
    if dialect == "sqlite":
        return func.instr(REFS.c.words, begins) > 0
    # Where rows are read in another order, to look into the text takes a tenth of making lexemes of it. PostgreSQL
    # takes "<> 0" for true of nearly all rows, so that the lexemes decide its estimate of how many match.
    lexeme = f"'{word[:MAX_WORD].translate(_QUOTED)}':*"
    indexed = WORD_LEXEMES.replace("words", "refs.words")
    asked: Any = text(f"{indexed} @@ CAST(:lexeme AS tsquery)").bindparams(bindparam("lexeme", lexeme, unique=True))
    return and_(func.strpos(REFS.c.words, begins) != 0, asked)

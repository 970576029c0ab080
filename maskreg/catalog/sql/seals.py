"""Seals and sums: damage to a catalog's file shows before a row of it is believed.

SQLite keeps no checksums. A flipped bit in a page can change a number, drop a row from an index or cut a table short,
and every query still succeeds. So each row carries a seal, and each table a sum::

    seal of a row     xxh3-128 of its other columns as JSON; a row number is not part of it
    sum of a table    number of rows, and the sum of xxh3-128("ROW NUMBER:SEAL") over them, modulo 2^128

    write             sum += new rows - old rows               in the transaction that writes them
    read              scan the whole table, not an index;      every seal right, and count and sum too?
                      answer from the rows that were checked   else CorruptError: rebuild from the store

A row that is changed breaks its seal. One that is lost, or there twice, breaks the sum, as does a row whose seal was
changed together with it. PostgreSQL checks its pages itself, and a sum would be a row that all writers wait for: there
only the seals are written, and :meth:`SqlCatalog.check` compares them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import xxhash
from sqlalchemy import ColumnElement, Connection, Double, Result, Table, delete, insert, select
from sqlalchemy.types import JSON

from maskreg.catalog.sql.columns import Words, clean
from maskreg.catalog.sql.models import Base, SumRow

Row = dict[str, Any]
"""Values by column name."""

SUMMED = ("artifacts", "refs", "measurements")
"""Tables with a sum. Events are only added, and read a few at a time; a seen source is checked when it is used."""

_SEAL = "seal"
_ID = "id"
_MODULUS = 1 << 128


class Sum(NamedTuple):
    """What a table's sum says: how many rows there are, and the sum over their seals modulo 2^128."""

    rows: int = 0
    sum: int = 0

    def plus(self, added: Sum, removed: Sum) -> Sum:
        """The sum after a change."""
        return Sum(self.rows + added.rows - removed.rows, (self.sum + added.sum - removed.sum) % _MODULUS)


def dicts(result: Result[Any]) -> list[Row]:
    """The rows of a result, by column name."""
    return [dict(row) for row in result.mappings()]


def seal_of(table: Table, row: Mapping[str, Any]) -> str:
    """The seal that a row of a table has to carry."""
    content = {name: _plain(table, name, row[name]) for name in table.c.keys() if name not in (_SEAL, _ID)}  # noqa: SIM118
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())


def sealed(name: str, row: Row) -> Row:
    """A row that is to be written, with its seal."""
    return {**row, _SEAL: seal_of(Base.metadata.tables[name], row)}


def checked_rows(connection: Connection, name: str) -> list[Row]:
    """Every row of a table, from a scan that uses no index.

    Raises:
        ValueError: a seal does not match, or the table's sum does not; or a value cannot be read.
    """
    table = Base.metadata.tables[name]
    rows = dicts(connection.execute(_scan(table)))
    check_seals(name, rows)
    if connection.dialect.name == "sqlite" and name in SUMMED:
        stated, computed = stored_sum(connection, name), _sum_of(rows)
        if stated != computed:
            raise ValueError(f"{name} has {computed.rows} rows that are not the {stated.rows} that were written")
    return rows


def check_seals(name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Compare rows of a table with their seals.

    Raises:
        ValueError: the first one that does not match.
    """
    table = Base.metadata.tables[name]
    for row in rows:
        if row[_SEAL] != seal_of(table, row):
            raise ValueError(f"a row of {name} does not match its seal")


@contextmanager
def summing(connection: Connection, name: str, where: ColumnElement[bool]) -> Iterator[None]:
    """Keep a table's sum right while the rows that ``where`` selects are changed."""
    if connection.dialect.name != "sqlite":
        yield
        return
    before = _summed(connection, name, where)
    yield
    after = _summed(connection, name, where)
    store_sum(connection, name, stored_sum(connection, name).plus(after, before))


def sum_anew(connection: Connection, name: str) -> None:
    """Write the sum of the rows that a table has now."""
    if connection.dialect.name == "sqlite":
        store_sum(connection, name, _summed(connection, name))


def stored_sum(connection: Connection, name: str) -> Sum:
    """The sum that was written last; that of an empty table when there is none."""
    row = connection.execute(select(SumRow.rows, SumRow.sum).where(SumRow.table == name)).one_or_none()
    return Sum() if row is None else Sum(row[0], int(row[1], 16))


def store_sum(connection: Connection, name: str, total: Sum) -> None:
    """Replace a table's sum."""
    connection.execute(delete(SumRow).where(SumRow.table == name))
    connection.execute(insert(SumRow).values(table=name, rows=total.rows, sum=f"{total.sum:032x}"))


def _summed(connection: Connection, name: str, where: ColumnElement[bool] | None = None) -> Sum:
    table = Base.metadata.tables[name]
    columns = [table.c[column] for column in (_ID, _SEAL) if column in table.c]
    rows = select(*columns)
    return _sum_of(dicts(connection.execute(rows if where is None else rows.where(where))))


def _sum_of(rows: Iterable[Mapping[str, Any]]) -> Sum:
    count = total = 0
    for row in rows:
        count += 1
        total += xxhash.xxh3_128_intdigest(f"{row.get(_ID, '')}:{row[_SEAL]}".encode())
    return Sum(count, total % _MODULUS)


def _scan(table: Table) -> Any:
    return select(table).with_hint(table, "NOT INDEXED", "sqlite")


def _plain(table: Table, name: str, value: Any) -> Any:
    # A row to be written and the row that is read back have to give the same text.
    kind = table.c[name].type
    if value is None or isinstance(kind, JSON):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(kind, Words) and isinstance(value, str):
        return clean(value)
    return float(value) if isinstance(kind, Double) else value

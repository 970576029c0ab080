"""Sums of tables in a database, and scans whose rows are checked; :mod:`maskreg.catalog.tables.seals` says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, Result, delete, insert, select

from maskreg.catalog.sql.models import Base, SumRow
from maskreg.catalog.tables.columns import Row
from maskreg.catalog.tables.seals import ID, SEAL, SUMMED, Sum, check_seals, check_sum, sum_of


def dicts(result: Result[Any]) -> list[Row]:
    """The rows of a result, by column name."""
    return [dict(row) for row in result.mappings()]


def checked_rows(connection: Connection, name: str) -> list[Row]:
    """Every row of a table, from a scan that uses no index.

    Raises:
        ValueError: a seal does not match, or the table's sum does not; or a value cannot be read.
    """
    table = Base.metadata.tables[name]
    rows = dicts(connection.execute(select(table).with_hint(table, "NOT INDEXED", "sqlite")))
    check_seals(name, rows)
    if connection.dialect.name == "sqlite" and name in SUMMED:
        check_sum(name, rows, stored_sum(connection, name))
    return rows


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
    columns = [table.c[column] for column in (ID, SEAL) if column in table.c]
    rows = select(*columns)
    return sum_of(dicts(connection.execute(rows if where is None else rows.where(where))))

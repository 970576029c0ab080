"""Reading and writing the tables of a SQLite file, with their seals and sums, by the standard library alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from maskreg.catalog.records import RLVR_OVERLAP
from maskreg.catalog.tables.columns import TABLES, Row, parse_row, stored_row
from maskreg.catalog.tables.connecting import connect
from maskreg.catalog.tables.rows import NO_OVERLAP, Overlap
from maskreg.catalog.tables.seals import Sum, check_seals, check_sum, sum_of
from maskreg.digest import Digest


@contextmanager
def transaction(path: Path, *, writes: bool) -> Iterator[sqlite3.Connection]:
    """A transaction on a file: committed at the end, rolled back by an error.

    One that writes takes its turn first; one that only reads sees one snapshot.

    Raises:
        sqlite3.Error: the file cannot be opened, or the transaction cannot begin or end.
    """
    # Closing the connection of a transaction that was not committed rolls it back.
    with closing(connect(path)) as file:
        file.row_factory = sqlite3.Row
        file.execute("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")
        yield file
        file.execute("COMMIT")


def rows(file: sqlite3.Connection, table: str, selection: str = "", values: Iterable[Any] = ()) -> list[Row]:
    """Rows of a table.

    Raises:
        sqlite3.Error, TypeError, ValueError: they cannot be read.
    """
    answers = file.execute(f"SELECT {_listed(TABLES[table])} FROM {table} {selection}", tuple(values))
    return [parse_row(table, dict(row)) for row in answers]


def sealed_rows(file: sqlite3.Connection, table: str, **key: Any) -> list[Row]:
    """The rows that have these values; their seals were compared.

    Raises:
        sqlite3.Error, TypeError, ValueError: they cannot be read, or a seal does not match.
    """
    result = rows(file, table, _where(key), key.values())
    check_seals(table, result)
    return result


def checked_rows(file: sqlite3.Connection, table: str) -> list[Row]:
    """Every row of a table, from a scan that uses no index.

    Raises:
        sqlite3.Error, TypeError, ValueError: they cannot be read, a seal does not match, or the table's sum does not.
    """
    result = rows(file, table, "NOT INDEXED")
    check_seals(table, result)
    check_sum(table, result, _stored_sum(file, table))
    return result


def put(file: sqlite3.Connection, table: str, row: Row, *key: str, newer: str = "") -> None:
    """Insert a row, or replace the one with the same ``key``, and keep the table's sum right.

    Args:
        file: the database, in a transaction that writes.
        table: has a sum.
        row: every column.
        key: names of the columns that identify a row.
        newer: a column whose value must not be less than that of the row to replace; otherwise that one stays.

    Raises:
        sqlite3.Error, ValueError: the row cannot be written.
    """
    where = {name: row[name] for name in key}
    before = sum_of(rows(file, table, _where(where), where.values()))
    replaced = ", ".join(f'"{name}" = excluded."{name}"' for name in row if name not in key)
    condition = f'WHERE excluded."{newer}" >= {table}."{newer}"' if newer else ""
    add(file, table, row, f"ON CONFLICT ({_listed(key)}) DO UPDATE SET {replaced} {condition}")
    after = sum_of(rows(file, table, _where(where), where.values()))
    total = _stored_sum(file, table).plus(after, before)
    file.execute("INSERT OR REPLACE INTO sums VALUES (?, ?, ?)", (table, total.rows, f"{total.sum:032x}"))


def add(file: sqlite3.Connection, table: str, row: Mapping[str, Any], conflict: str = "") -> None:
    """Insert a row into a table whose sum is not kept, or is kept by the caller.

    Raises:
        sqlite3.Error, ValueError: the row cannot be written.
    """
    stored = stored_row(table, row)
    marks = ", ".join("?" * len(stored))
    file.execute(f"INSERT INTO {table} ({_listed(stored)}) VALUES ({marks}) {conflict}", tuple(stored.values()))


def recorded_overlap(file: sqlite3.Connection, digest: Digest) -> Overlap:
    """The recorded overlap that counts for an artifact: the latest.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    query = "SELECT value, against FROM measurements WHERE metric = ? AND by_group = '' AND digest = ?"
    row = file.execute(f"{query} ORDER BY id DESC LIMIT 1", (RLVR_OVERLAP, digest)).fetchone()
    return NO_OVERLAP if row is None else (row["value"], row["against"])


def _stored_sum(file: sqlite3.Connection, table: str) -> Sum:
    stated = rows(file, "sums", 'WHERE "table" = ?', (table,))
    return Sum(stated[0]["rows"], int(stated[0]["sum"], 16)) if stated else Sum()


def _where(key: Mapping[str, Any]) -> str:
    return "WHERE " + " AND ".join(f'"{name}" = ?' for name in key)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)

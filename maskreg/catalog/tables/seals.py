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
only the seals are written, and :meth:`maskreg.catalog.base.Catalog.check` compares them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import xxhash

from maskreg.catalog.tables.columns import TABLES, Kind, Row, clean

SUMMED = ("artifacts", "refs", "measurements")
"""Tables with a sum. Events are only added, and read a few at a time; a seen source is checked when it is used."""

SEAL = "seal"
"""The column of a row's seal."""

ID = "id"
"""The column of a row's number."""

_MODULUS = 1 << 128


class Sum(NamedTuple):
    """What a table's sum says: how many rows there are, and the sum over their seals modulo 2^128."""

    rows: int = 0
    sum: int = 0

    def plus(self, added: Sum, removed: Sum) -> Sum:
        """The sum after a change."""
        return Sum(self.rows + added.rows - removed.rows, (self.sum + added.sum - removed.sum) % _MODULUS)


def seal_of(table: str, row: Mapping[str, Any]) -> str:
    """The seal that a row of a table has to carry."""
    content = {name: _plain(kind, row[name]) for name, kind in TABLES[table].items() if name not in (SEAL, ID)}
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())


def sealed(table: str, row: Row) -> Row:
    """A row that is to be written, with its seal."""
    return {**row, SEAL: seal_of(table, row)}


def check_seals(table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Compare rows of a table with their seals.

    Raises:
        ValueError: the first one that does not match.
    """
    for row in rows:
        if row[SEAL] != seal_of(table, row):
            raise ValueError(f"a row of {table} does not match its seal")


def check_sum(table: str, rows: Iterable[Mapping[str, Any]], stated: Sum) -> None:
    """Compare all rows of a table with its sum.

    Raises:
        ValueError: it does not match.
    """
    computed = sum_of(rows)
    if stated != computed:
        raise ValueError(f"{table} has {computed.rows} rows that are not the {stated.rows} that were written")


def sum_of(rows: Iterable[Mapping[str, Any]]) -> Sum:
    """The sum of rows, of which the seals and the numbers count."""
    count = total = 0
    for row in rows:
        count += 1
        total += xxhash.xxh3_128_intdigest(f"{row.get(ID, '')}:{row[SEAL]}".encode())
    return Sum(count, total % _MODULUS)


def _plain(kind: Kind, value: Any) -> Any:
    # A row to be written and the row that is read back have to give the same text.
    if value is None or kind is Kind.DOCUMENT:
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if kind is Kind.TEXT and isinstance(value, str):
        return clean(value)
    return float(value) if kind is Kind.NUMBER else value

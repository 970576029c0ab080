"""The numbers of the indexed entries: how far the index is, tag by tag."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from sqlalchemy import Connection, select, tuple_

from maskreg.catalog.query import LARGE
from maskreg.catalog.sql.models import RefRow
from maskreg.catalog.sql.seals import dicts
from maskreg.catalog.tables.rows import numbers_of
from maskreg.ref import Ref

_KEY = (RefRow.project, RefRow.name, RefRow.tag)
_NUMBERED = select(*_KEY, RefRow.n)
_ASKED = 500


def is_large(connection: Connection) -> bool:
    """Whether there are more than ``LARGE`` tags, removed ones included; counts no further."""
    return connection.execute(_NUMBERED.offset(LARGE).limit(1)).first() is not None


def all_numbers(connection: Connection) -> dict[Ref, int]:
    """The number of every tag."""
    return numbers_of(dicts(connection.execute(_NUMBERED)))


def numbers_among(connection: Connection, refs: Iterable[Ref]) -> dict[Ref, int]:
    """The numbers of those of ``refs`` that are indexed."""
    result: dict[Ref, int] = {}
    rest = iter(refs)
    while asked := list(islice(rest, _ASKED)):
        keys = [(ref.project, ref.name, ref.tag) for ref in asked]
        result |= numbers_of(dicts(connection.execute(_NUMBERED.where(tuple_(*_KEY).in_(keys)))))
    return result

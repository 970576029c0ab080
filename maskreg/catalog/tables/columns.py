"""The tables of a catalog: what their columns hold, and the revisions of their schema.

This is what a row can be sealed and read with, without SQLAlchemy, whose models say the same and more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
"""Every revision of the schema that this version knows, oldest first; listed here because alembic is slow to import."""

HEAD = REVISIONS[-1]
"""The revision that this version works with."""

VERSION_TABLE = "maskreg_schema"
"""Not alembic's default name, so that another application may use alembic in the same database."""

Row = dict[str, Any]
"""Values by column name."""


class Kind(Enum):
    """What a column holds."""

    TEXT = auto()
    WHOLE = auto()
    NUMBER = auto()
    TRUTH = auto()
    MOMENT = auto()
    DOCUMENT = auto()


_T, _W, _N = Kind.TEXT, Kind.WHOLE, Kind.NUMBER

TABLES: Mapping[str, Mapping[str, Kind]] = {
    "artifacts": {
        **dict.fromkeys(("digest", "kind", "rule"), _T),
        "exact": Kind.TRUTH,
        **dict.fromkeys(("density", "ffn_density", "ffn_share", "ffn_lift"), _N),
        **dict.fromkeys(("nnz", "numel", "params", "size"), _W),
        **dict.fromkeys(("source_root", "source_hub", "target_root"), _T),
        "rlvr_overlap": _N,
        **dict.fromkeys(("rlvr_against", "seal"), _T),
    },
    "refs": {
        **dict.fromkeys(("project", "name", "tag"), _T),
        "n": _W,
        "digest": _T,
        "deleted": Kind.TRUTH,
        **dict.fromkeys(("family", "method", "license", "description"), _T),
        "meta": Kind.DOCUMENT,
        "by": _T,
        "at": Kind.MOMENT,
        **dict.fromkeys(("origin", "words", "seal"), _T),
    },
    "filled": {"source": _T, "at": Kind.MOMENT, "unread": Kind.DOCUMENT, "followed": _W, "seal": _T},
    "sums": {"table": _T, "rows": _W, "sum": _T},
    "measurements": {
        "id": _W,
        **dict.fromkeys(("digest", "metric", "against", "by_group"), _T),
        "value": _N,
        "detail": Kind.DOCUMENT,
        "at": Kind.MOMENT,
        **dict.fromkeys(("by", "seal"), _T),
    },
    "events": {
        "id": _W,
        "at": Kind.MOMENT,
        **dict.fromkeys(("by", "action", "subject"), _T),
        "detail": Kind.DOCUMENT,
        "seal": _T,
    },
    "seen_sources": {"id": _W, "root": _T, "path": _T, "at": Kind.MOMENT},
}
"""The kind of every column, by table and name, in the order of the models."""


def clean(text: str) -> str:
    """``text`` with what one of the databases cannot store replaced.

    Cards come from outside: PostgreSQL refuses NUL, and both refuse a lone surrogate.
    """
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def parse_document(stored: str) -> Any:
    """A JSON document as it is stored.

    Raises:
        ValueError, TypeError: it is none, or nested deeper than any that is written.
    """
    try:
        return json.loads(stored)
    except RecursionError as error:
        raise ValueError("a document is nested too deeply") from error


def parse_row(table: str, stored: Mapping[str, Any]) -> Row:
    """The values of a row as Python has them, from what SQLite stores.

    Raises:
        ValueError, TypeError: a value that its column cannot hold.
    """
    return {name: _parsed(kind, stored[name]) for name, kind in TABLES[table].items()}


def stored_row(table: str, row: Mapping[str, Any]) -> Row:
    """What SQLite stores for a row of a table: the opposite of :func:`parse_row`.

    Raises:
        ValueError: a time without a time zone.
    """
    return {name: _stored(TABLES[table][name], value) for name, value in row.items()}


def _stored(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case Kind.TEXT:
            return clean(value)
        case Kind.MOMENT:
            if value.tzinfo is None:
                raise ValueError(f"{value} has no time zone")
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
        case Kind.DOCUMENT:
            return json.dumps(value)
    return value


def _parsed(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case Kind.TRUTH:
            # bool would make True of any other number: of a damaged one.
            if value not in (0, 1):
                raise ValueError(f"{value!r} is neither true nor false")
            return bool(value)
        case Kind.MOMENT:
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        case Kind.DOCUMENT:
            return parse_document(value)
    return value

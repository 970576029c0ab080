"""Cursors: where the next page of a list begins, as a text that clients pass back as it is.

A cursor holds a position in the order and a hash of what was listed::

    ["2025-03-01T12:00:00.123456+00:00", "team", "opd", "v1", "5f2b..."]      as JSON, in base64 for URLs

It is no secret and proves nothing: what may be seen is decided anew for each page. One that was changed, or belongs to
another list, is refused, so that a client's mistake does not look like the end of the list.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime

from maskreg.catalog.query import Position, Query, Value
from maskreg.errors import BadRefError, UsageError
from maskreg.ref import Ref

_MAX_CHARS = 2_048
_TIMES = ("created",)
_TEXTS = ("name", "by", "project", "family", "method", "license", "kind")
_COUNTS = ("size", "params", "nnz", "numel")


def cursor_of(query: Query, position: Position) -> str:
    """The cursor of a position in the results of a query."""
    value = position.value.isoformat() if isinstance(position.value, datetime) else position.value
    return _written([value, position.ref.project, position.ref.name, position.ref.tag, _hash(query)])


def position_of(query: Query, cursor: str) -> Position:
    """The position of a cursor."""
    row = _read(cursor)
    if len(row) != 5 or row[4] != _hash(query):
        raise _refusal("belongs to another search")
    value, *parts, _ = row
    return Position(_value(query.sort, value), _ref(parts))


def number_cursor(name: str, number: int) -> str:
    """The cursor of a list of numbered rows, such as a log; ``name`` says which list."""
    return _written([number, _digest(name)])


def number_of(name: str, cursor: str) -> int:
    """The number in such a cursor."""
    row = _read(cursor)
    if len(row) != 2 or row[1] != _digest(name) or type(row[0]) is not int or not 0 <= row[0] < 1 << 63:
        raise _refusal("belongs to another list")
    return row[0]


def name_cursor(name: str, last: str) -> str:
    """The cursor of a list in the order of its texts; ``name`` says which list."""
    return _written([last, _digest(name)])


def name_of(name: str, cursor: str) -> str:
    """The text in such a cursor."""
    row = _read(cursor)
    if len(row) != 2 or row[1] != _digest(name) or not isinstance(row[0], str):
        raise _refusal("belongs to another list")
    return row[0]


def _written(row: list[object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(row, separators=(",", ":")).encode()).decode().rstrip("=")


def _read(cursor: str) -> list[object]:
    if len(cursor) > _MAX_CHARS:
        raise _refusal("is too long")
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        row = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _refusal("is damaged") from error
    # One text a position, so that no second cursor means the same.
    if not isinstance(row, list) or _written(row) != cursor:
        raise _refusal("is damaged")
    return row


def _refusal(why: str) -> UsageError:
    return UsageError(f"the cursor {why}", hint="begin again without a cursor")


def _hash(query: Query) -> str:
    # Neither the size of a page nor what a reader sees has to stay the same.
    same = replace(query, limit=None, after=None, projects=None, hidden=frozenset())
    return _digest(repr(same))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _value(sort: str, value: object) -> Value:
    # True and false are whole numbers to Python, and none to a database.
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if sort in _TIMES:
        at = _time(value)
        if at is not None:
            return at
    elif sort in _TEXTS:
        if isinstance(value, str):
            return value
    elif sort in _COUNTS:
        if isinstance(number, int) and abs(number) < 1 << 63:
            return number
    elif value is None or (number is not None and abs(number) <= sys.float_info.max):
        return None if number is None else float(number)
    raise _refusal("is damaged")


def _time(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        return at.astimezone(UTC) if at is not None and at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _ref(parts: list[object]) -> Ref:
    try:
        project, name, tag = parts
        return Ref.parse(f"{project}/{name}:{tag}")
    except (BadRefError, ValueError) as error:
        raise _refusal("is damaged") from error

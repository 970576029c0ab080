"""Answers: conditions (RFC 9110, section 13), which spare a client what it has, and cursors of long lists.

The ETag of a tag is the id of the latest entry of its log. A change of a tag names the state that its client has seen::

    PUT     If-None-Match: *         set a tag that is not set
    PUT     If-Match: "sha256:..."   move a tag that is at this entry
    PATCH, DELETE, restore           If-Match as well; If-Match: * says that the state does not matter

    428    neither was said
    412    the tag is not in that state, or was changed while the request was worked on

A cursor holds a position in the order and a hash of what was listed::

    ["2025-03-01T12:00:00.123456+00:00", "team", "opd", "v1", "5f2b..."]      as JSON, in base64 for URLs

It is no secret and proves nothing: what can be seen is decided anew for each page. One that was changed, or belongs to
another list, is refused, so that a client's mistake does not look like the end of the list.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request, Response
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from maskreg.catalog.query import COLUMN_OF_SORT, COLUMNS, Column, Position, Query, Value
from maskreg.digest import Digest
from maskreg.errors import BadRefError, PreconditionError, UsageError
from maskreg.ref import Ref
from maskreg.registry.tags import Expected

T = TypeVar("T")

NUMBER = TypeAdapter(tuple[Annotated[int, Field(ge=0, lt=1 << 63)]])
"""What the cursor of a list of numbered rows, such as a log, holds."""


def _position(column: Column) -> TypeAdapter[tuple[Value, str, str, str]]:
    kind: Any = {
        datetime: AwareDatetime,
        int: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)],
        float: Annotated[float, Field(allow_inf_nan=False)],
    }.get(column.type, str)
    sorted_by = kind | None if column.nullable else kind
    return TypeAdapter(tuple[sorted_by, str, str, str])  # type: ignore[valid-type]


_POSITIONS = {sort: _position(COLUMNS[name]) for sort, name in COLUMN_OF_SORT.items()}

_TAG = re.compile(r'(?P<weak>W/)?"(?P<id>[\x21\x23-\x7e]*)"')
_MAX_CHARS = 4_096

IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="The ETag that the tag has to have, or `*`.", max_length=_MAX_CHARS),
]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="`*`: the tag must not be set.", max_length=_MAX_CHARS)
]


def etag_of(entry: Digest) -> str:
    """The ETag of a tag whose latest entry has this id."""
    return f'"{entry}"'


def expected_of(if_match: IfMatch = None) -> Expected:
    """What a request to change a tag expects, from its headers."""
    if not if_match:
        fault = "the request does not say which state of the tag it changes"
        raise PreconditionError(fault, hint="send If-Match with the tag's ETag")
    if if_match.strip() == "*":
        return None
    match = _TAG.fullmatch(if_match.strip())
    if match is None or match["weak"]:
        raise UsageError('If-Match has to be one strong ETag, such as "sha256:...", or *')
    try:
        return Digest(match["id"])
    except ValueError as error:
        raise UsageError("If-Match is not the ETag of a tag") from error


def expected_or_new(if_match: IfMatch = None, if_none_match: IfNoneMatch = None) -> Expected:
    """The same for a request that can set a tag which is not set."""
    if not if_none_match:
        try:
            return expected_of(if_match)
        except PreconditionError as error:
            error.hint += ", or If-None-Match: * to set a new tag"
            raise
    if if_match:
        raise UsageError("If-Match and If-None-Match are both given")
    if if_none_match.strip() != "*":
        raise UsageError("If-None-Match can only be * here")
    return "absent"


def reply(request: Request, model: BaseModel, *, etag: str = "", status: int = 200) -> Response:
    """The answer to a request that reads: the model as JSON, or 304 where the client has it."""
    body = model.model_dump_json().encode()
    etag = etag or f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    # Shared caches must not keep it, and a private one asks again: what one can see can change at any time.
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie"}
    held = request.headers.get("if-none-match", "")[:_MAX_CHARS].strip()
    has = held == "*" or etag.removeprefix("W/") in (f'"{match["id"]}"' for match in _TAG.finditer(held))
    if request.method in ("GET", "HEAD") and has:
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers, media_type="application/json")


def cursor_of(scope: str, *values: object) -> str:
    """The cursor of a position in a list; ``scope`` says which list."""
    return _written([*values, _hash(scope)])


def values_of(scope: str, cursor: str, kind: TypeAdapter[T]) -> T:
    """The values in a cursor of a list."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        row = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _refusal("is damaged") from error
    # One text a position, so that no second cursor means the same.
    if not isinstance(row, list) or not row or _written(row) != cursor:
        raise _refusal("is damaged")
    if row[-1] != _hash(scope):
        raise _refusal("belongs to another list")
    try:
        return kind.validate_json(json.dumps(row[:-1]), strict=True)
    except ValidationError as error:
        raise _refusal("is damaged") from error


def position_cursor(query: Query, position: Position) -> str:
    """The cursor of a position in the results of a query."""
    value = position.value.isoformat() if isinstance(position.value, datetime) else position.value
    return cursor_of(_scope(query), value, position.ref.project, position.ref.name, position.ref.tag)


def position_of(query: Query, cursor: str) -> Position:
    """The position in the results of a query."""
    value, project, name, tag = values_of(_scope(query), cursor, _POSITIONS[query.sort])
    try:
        at = value.astimezone(UTC) if isinstance(value, datetime) else value
        return Position(at, Ref.parse(f"{project}/{name}:{tag}"))
    except (BadRefError, OverflowError) as error:
        raise _refusal("is damaged") from error


def _scope(query: Query) -> str:
    # Neither the size of a page nor what a reader sees has to stay the same.
    return repr(replace(query, limit=None, after=None, projects=None, hidden=frozenset()))


def _written(row: list[object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(row, separators=(",", ":")).encode()).decode().rstrip("=")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _refusal(why: str) -> UsageError:
    return UsageError(f"the cursor {why}", hint="begin again without a cursor")

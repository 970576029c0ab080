"""Conditions of requests (RFC 9110, section 13): answers that the client has already, and changes to what it has seen.

The ETag of a tag is the id of the latest entry of its log. A change of a tag names the state that its client has seen::

    PUT     If-None-Match: *         set a tag that is not set
    PUT     If-Match: "sha256:..."   move a tag that is at this entry
    PATCH, DELETE, restore           If-Match as well; If-Match: * says that the state does not matter

    428    neither was said
    412    the tag is not in that state, or was changed while the request was worked on
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated

from fastapi import Header, Request, Response
from pydantic import BaseModel

from maskreg.digest import Digest
from maskreg.errors import PreconditionError, UsageError
from maskreg.registry.tags import Expected

_TAG = re.compile(r'(?P<weak>W/)?"(?P<id>[\x21\x23-\x7e]*)"')
_MAX_CHARS = 4_096
_UNSAID = "the request does not say which state of the tag it changes"

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
        raise PreconditionError(_UNSAID, hint="send If-Match with the tag's ETag")
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
    """The same for a request that may set a tag which is not set."""
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
    # Shared caches must not keep it, and a private one asks again: what one may see can change at any time.
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie"}
    if request.method in ("GET", "HEAD") and _has(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers, media_type="application/json")


def _has(header: str, etag: str) -> bool:
    if not header or len(header) > _MAX_CHARS:
        return False
    return header.strip() == "*" or etag.removeprefix("W/") in (f'"{match["id"]}"' for match in _TAG.finditer(header))

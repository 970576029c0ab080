"""Activity: what happened to the names of a server, and to who may do what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from maskreg.errors import BadRefError
from maskreg.ref import Ref
from maskreg.service.access import Needs, Where
from maskreg.service.api.cursors import number_cursor, number_of
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Served
from maskreg.service.pages.rendering import link, page

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

_LIMIT = 50
_BATCH = 200
_BATCHES = 10

Cursor = Annotated[str, Query(max_length=2048)]


@dataclass(frozen=True)
class Happened:
    """One line of the page.

    Attributes:
        number: of the event.
        at: when.
        by: who.
        action: what they did.
        subject: to what.
        address: of the subject's page; empty where there is none.
        detail: what more is known, as texts.
    """

    number: int
    at: datetime
    by: str
    action: str
    subject: str
    address: str
    detail: Mapping[str, str]


@router.get("/activity")
def everywhere(
    request: Request,
    service: Served,
    principal: Annotated[Principal, Depends(Needs(Role.NOBODY, Where.ANY))],
    cursor: Cursor = "",
) -> HTMLResponse:
    """What happened to the names that the reader may read, the newest first."""
    before = number_of("activity", cursor) if cursor else None
    rows: list[Happened] = []
    last = before
    for _ in range(_BATCHES):
        events = service.registry.index.must_open().events(before=last, limit=_BATCH)
        for event in events:
            last = event.id
            if (line := _line(event, principal)) is not None:
                rows.append(line)
            if len(rows) == _LIMIT:
                break
        if len(rows) == _LIMIT or len(events) < _BATCH:
            more = len(rows) == _LIMIT
            break
    else:
        more = True
    following = number_cursor("activity", last) if more and last is not None else None
    return page(request, principal, "activity.html.j2", rows=rows, following=following)


def _line(event: Any, principal: Principal) -> Happened | None:
    try:
        ref = Ref.parse(event.subject)
    except BadRefError:
        # Digests and keys have no project: they are for whoever runs the server.
        address = ""
        if principal.server_role < Role.ADMIN:
            return None
    else:
        if principal.role(ref.project) < Role.READER:
            return None
        address = link(ref)
    detail = {key: str(value) for key, value in event.detail.items() if isinstance(value, str | int | float)}
    return Happened(event.id, event.at, event.by, event.action, event.subject, address, detail)

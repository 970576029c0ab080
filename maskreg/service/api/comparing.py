"""The overlap of two artifacts, measured once."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from maskreg.digest import Digest
from maskreg.errors import TryAgainError
from maskreg.service.api import models
from maskreg.service.api.artifacts import Reader
from maskreg.service.api.conditions import reply
from maskreg.service.context import Served
from maskreg.service.gateway.visibility import check_may_read
from maskreg.workspace.recording import compare_pair

router = APIRouter(tags=["artifacts"])

Side = Annotated[str, Query(pattern="^sha256:[0-9a-f]{64}$", examples=[models.DIGEST])]

AT_ONCE = 2
"""Comparisons that one process works on at a time; each uses several threads."""

_SECONDS = 5.0
_slots = threading.BoundedSemaphore(AT_ONCE)


@router.get(
    "/compare",
    response_model=models.Comparison,
    responses={
        413: {"description": "They have too many coordinates to be compared within a request."},
        503: {"description": "Too many comparisons are under way."},
    },
)
def compare(a: Side, b: Side, request: Request, service: Served, principal: Reader) -> Response:
    """What two masks share, beside chance. It is measured at the first request, and kept."""
    first, second = Digest(a), Digest(b)
    check_may_read(service.registry, principal, first)
    check_may_read(service.registry, principal, second)
    if not _slots.acquire(timeout=_SECONDS):
        raise TryAgainError("too many comparisons are under way", hint="send the same request again")
    try:
        pair = compare_pair(
            first,
            second,
            most_coordinates=service.most_compared,
            remote=service.remote,
            by=principal.name or "visitor",
            workspace=service.workspace,
        )
    finally:
        _slots.release()
    return reply(request, models.Comparison(a=first, b=second, figures=dict(pair.figures), at=pair.at))

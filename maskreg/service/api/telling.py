"""``/metrics``: the numbers of the server, for who runs it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from maskreg.service.access import Needs, Where
from maskreg.service.accounts.roles import Principal, Role
from maskreg.service.observing import metrics

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response)
def exposed(principal: Annotated[Principal, Depends(Needs(Role.ADMIN, Where.SERVER))]) -> Response:
    """Metrics in the text format of Prometheus. `maskreg serve --metrics-port` gives them a port without a token."""
    return Response(metrics.exposed(), media_type=metrics.MEDIA_TYPE, headers={"Cache-Control": "no-store"})

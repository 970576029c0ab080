"""``/livez``, ``/readyz`` and ``/metrics``: whether the process runs, whether it can serve, and its numbers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from maskreg.service.access import PUBLIC, Needs, Where
from maskreg.service.accounts.roles import Principal, Role
from maskreg.service.observing import metrics as numbers
from maskreg.service.readiness import Readiness

router = APIRouter(tags=["health"])


@router.get("/livez", dependencies=[PUBLIC])
async def live() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", dependencies=[PUBLIC])
async def ready(request: Request) -> dict[str, str]:
    """The store, the catalog and the accounts answer within seconds, and have this version's schema."""
    readiness: Readiness = request.app.state.readiness
    await readiness.check()
    return {"status": "ok"}


@router.get("/metrics", response_class=Response)
def metrics(principal: Annotated[Principal, Depends(Needs(Role.ADMIN, Where.SERVER))]) -> Response:
    """Metrics in the text format of Prometheus. `maskreg serve --metrics-port` gives them a port without a token."""
    return Response(numbers.exposed(), media_type=numbers.MEDIA_TYPE, headers={"Cache-Control": "no-store"})

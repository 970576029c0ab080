"""``/livez`` and ``/readyz``: whether the process runs, and whether it can serve."""

from __future__ import annotations

from fastapi import APIRouter, Request

from maskreg.service.access import PUBLIC
from maskreg.service.readiness import Readiness

router = APIRouter(tags=["health"], dependencies=[PUBLIC])


@router.get("/livez")
async def live() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
async def ready(request: Request) -> dict[str, str]:
    """The store, the catalog and the accounts answer within seconds, and have this version's schema."""
    readiness: Readiness = request.app.state.readiness
    await readiness.check()
    return {"status": "ok"}

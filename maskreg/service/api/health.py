"""``/livez`` and ``/readyz``: whether the process runs, and whether it can serve."""

from __future__ import annotations

from fastapi import APIRouter

from maskreg.registry.identity import check_same
from maskreg.service.access import PUBLIC
from maskreg.service.context import Served

router = APIRouter(tags=["health"], dependencies=[PUBLIC])


@router.get("/livez")
async def live() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
def ready(service: Served) -> dict[str, str]:
    """The store, the catalog and the accounts answer, and have this version's schema."""
    check_same(service.registry.store, service.registry.uuid)
    service.registry.index.must_open()
    service.accounts.ready()
    return {"status": "ok"}

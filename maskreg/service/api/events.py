"""Events: what happened in the registry, from the audit log of its catalog."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from maskreg.service.access import Needs, Where
from maskreg.service.api import models
from maskreg.service.api.artifacts import Cursor, Limit
from maskreg.service.api.conditions import reply
from maskreg.service.api.cursors import number_cursor, number_of
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Served, Service

router = APIRouter(tags=["events"])

Reader = Annotated[Principal, Depends(Needs(Role.READER))]
Keeper = Annotated[Principal, Depends(Needs(Role.ADMIN, Where.SERVER))]


def _in_utc(at: datetime) -> datetime:
    # What the catalog compares: near the first and the last day of all, another zone's hours lead out of them.
    try:
        return at.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the years 1 to 9999 can be asked for") from error


Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]


class EventFilters(BaseModel):
    """Which events; all that is given has to match."""

    model_config = ConfigDict(extra="forbid")

    subject: str = Field("", max_length=512, description="The reference, digest or key that it happened to.")
    action: str = Field("", max_length=100)
    by: str = Field("", max_length=1024)
    since: Instant | None = Field(None, description="Not before; with a time zone.")
    limit: Limit = 50
    cursor: Cursor = ""


@router.get("/events", response_model=models.Events)
def everywhere(
    filters: Annotated[EventFilters, Query()], request: Request, service: Served, principal: Keeper
) -> Response:
    """Events of the whole registry, the newest first."""
    return _events(request, service, filters, None)


@router.get("/projects/{project}/events", response_model=models.Events)
def in_project(
    project: Annotated[str, Path(max_length=255)],
    filters: Annotated[EventFilters, Query()],
    request: Request,
    service: Served,
    principal: Reader,
) -> Response:
    """Events of a project's names, the newest first."""
    return _events(request, service, filters, project)


def _events(request: Request, service: Service, filters: EventFilters, project: str | None) -> Response:
    scope = f"events {project or ''}"
    before = number_of(scope, filters.cursor) if filters.cursor else None
    since: datetime | None = filters.since
    rows = service.registry.index.must_open().events(
        subject=filters.subject,
        action=filters.action,
        by=filters.by,
        since=since,
        project=project,
        before=before,
        limit=filters.limit + 1,
    )
    items = [models.Logged.model_validate(row) for row in rows[: filters.limit]]
    cursor = number_cursor(scope, items[-1].id) if len(rows) > filters.limit else None
    return reply(request, models.Events(items=items, next=cursor))

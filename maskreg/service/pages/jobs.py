"""The page of jobs: what the server works on, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from maskreg.service.access import Needs, Where
from maskreg.service.api import patches
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Served
from maskreg.service.jobs.queue import Job
from maskreg.service.pages.rendering import page

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

_LIMIT = 50


@router.get("/jobs")
def jobs(
    request: Request,
    service: Served,
    principal: Annotated[Principal, Depends(Needs(Role.NOBODY, Where.ANY))],
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> HTMLResponse:
    """Jobs of the projects that the reader may read, the newest first."""
    shown: list[Job] = []
    if service.jobs is not None and principal.highest >= Role.READER:
        shown = patches.visible_jobs(service, principal, before=before, limit=_LIMIT)
    return page(
        request,
        principal,
        "jobs.html.j2",
        jobs=shown,
        runs_jobs=service.jobs is not None,
        may_cancel={job.id for job in shown if principal.role(job.project) >= Role.WRITER and not job.state.is_final},
        summary=summary,
        older=shown[-1].number if len(shown) == _LIMIT else None,
    )


@router.get("/jobs/{id}")
def job(
    request: Request,
    service: Served,
    id: str,
    principal: Annotated[Principal, Depends(Needs(Role.READER, Where.ANY))],
) -> HTMLResponse:
    """One job."""
    shown = patches.visible_job(service, principal, id)
    may_cancel = principal.role(shown.project) >= Role.WRITER and not shown.state.is_final
    return page(request, principal, "job.html.j2", job=shown, may_cancel=may_cancel, summary=summary)


@router.post("/jobs/{id}/cancel", response_class=RedirectResponse, status_code=303)
def cancel(
    service: Served, id: str, principal: Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY))]
) -> RedirectResponse:
    """Stop a job."""
    patches.cancel(service, principal, id)
    return RedirectResponse(f"/jobs/{id}", 303)


def summary(values: Mapping[str, Any] | None) -> dict[str, str]:
    """What can be shown in a line each: texts and numbers; lists and objects are for programs."""
    if values is None:
        return {}
    return {
        key.replace("_", " "): "yes" if value is True else f"{value:,}" if isinstance(value, int) else str(value)
        for key, value in values.items()
        if isinstance(value, str | int | float) and value != "" and value is not False
    }

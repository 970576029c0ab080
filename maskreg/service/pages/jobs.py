"""The pages of jobs: which there are, and of one how far it is, what it makes, and a button that stops it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from maskreg.digest import Digest
from maskreg.ref import Ref, ShortDigest, parse_artifact
from maskreg.service.access import SomeReader
from maskreg.service.api import patches
from maskreg.service.context import Served
from maskreg.service.pages.rendering import page
from maskreg.workspace.verbs.jobs import Job, JobState

router = APIRouter(prefix="/jobs", tags=["pages"], default_response_class=HTMLResponse)

ROWS = 50
"""Jobs on a page."""

REFS = ("artifact", "artifacts", "mask", "name", "ref")
"""Fields of requests and results that name artifacts of the registry."""


@router.get("")
def jobs(
    request: Request,
    service: Served,
    principal: SomeReader,
    project: Annotated[str | None, Query(max_length=255)] = None,
    state: JobState | None = None,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> HTMLResponse:
    """The jobs of the projects that the reader can read, the newest first."""
    found = patches.list_(service, principal, project, [state] if state else None, before, ROWS)
    values = {"project": project, "state": state, "states": list(JobState), "before": before}
    return page(request, principal, "jobs.html.j2", status=200, jobs=found.items, older=found.next, **values)


@router.get("/{id}")
def job(request: Request, service: Served, principal: SomeReader, id: str) -> HTMLResponse:
    """A job as it is now."""
    found = patches.show(service, principal, id)
    goes_on = not (found.state.is_final or found.canceled_by)
    can_cancel = goes_on and principal.role(found.project) >= patches.canceler(found, principal)
    values = {"job": found, "refs": refs_of(found), "can_cancel": can_cancel}
    return page(request, principal, "job.html.j2", status=200, **values)


@router.post("/{id}/cancel", response_class=RedirectResponse, status_code=303)
def cancel(service: Served, principal: patches.Writer, id: str) -> RedirectResponse:
    """Stop a job."""
    patches.cancel(service, principal, id)
    return RedirectResponse(f"/jobs/{id}", 303)


def refs_of(job: Job) -> dict[str, list[Ref | Digest | ShortDigest]]:
    """The artifacts that a job's request and result name, by field; a digest where the reader can read no name."""
    fields: dict[str, Any] = {**job.request, **(job.result or {})}
    texts = {name: fields[name] for name in REFS if fields.get(name)}
    return {name: list(map(parse_artifact, [text] if isinstance(text, str) else text)) for name, text in texts.items()}

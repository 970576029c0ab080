"""``/api/v1/patches``: jobs that apply, merge or extract on the server; and ``/api/v1/sources``, what they may read."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from maskreg.errors import NotFoundError
from maskreg.ref import Ref
from maskreg.service.access import Needs, Where
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Role, check_role
from maskreg.service.context import Served, Service
from maskreg.service.documents import DocumentRoute
from maskreg.service.gateway.admission import check_tombstone
from maskreg.service.jobs.base import Job, JobFilter, JobState
from maskreg.service.jobs.events import EVENT_STREAM, check_streams, events
from maskreg.service.jobs.patching import Patching
from maskreg.service.jobs.requests import PatchRequest
from maskreg.service.jobs.submitting import Submitter, new_job
from maskreg.store.chain import check_free

router = APIRouter(tags=["patches"], route_class=DocumentRoute)

Reader = Annotated[Principal, Depends(Needs(Role.READER, Where.ANY))]
Writer = Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY))]


def patching_of(service: Service) -> Patching:
    """The part of a server that runs jobs.

    Raises:
        NotFoundError: this server runs none.
    """
    if service.patching is None:
        raise NotFoundError("this server runs no jobs", hint="the operator can let it run some")
    return service.patching


def visible_jobs(
    service: Service,
    principal: Principal,
    *,
    project: str | None = None,
    states: Collection[JobState] = (),
    before: int | None = None,
    limit: int = 50,
) -> list[Job]:
    """Jobs of the projects that somebody may read, the newest first; for the API and for pages.

    Args:
        service: the server.
        principal: who wants to know.
        project: of this project only.
        states: in these states only.
        before: submitted before the job with this number.
        limit: at most this many.

    Raises:
        NotFoundError: there is no such project for this principal; or the server runs no jobs.
    """
    projects: Collection[str] | None = None
    if project is not None:
        check_role(principal, project, Role.READER)
        projects = (project,)
    elif principal.server_role < Role.READER:
        granted = {name for name, role in principal.grants.items() if role >= Role.READER}
        projects = sorted((granted | principal.public) - {EVERY_PROJECT})
    which = JobFilter(projects, states, before, limit, hidden=principal.deleted)
    return patching_of(service).queue.list(which)


def visible_job(service: Service, principal: Principal, id: str, role: Role = Role.READER) -> Job:
    """A job, if somebody has a role in its project.

    Raises:
        NotFoundError: there is no such job for this principal; or the server runs no jobs.
        NotAllowedError: they may see it, and no more.
    """
    job = patching_of(service).queue.get(id)
    if principal.role(job.project) is Role.NOBODY:
        raise NotFoundError(f"there is no job {id}")
    check_role(principal, job.project, role)
    return job


@router.get("/sources")
def sources(service: Served, principal: Writer) -> dict[str, Any]:
    """The names of the checkpoints that jobs can read, for accounts that can submit jobs."""
    return {"items": list(patching_of(service).sources.offered())}


@router.post("/patches", status_code=202)
def submit(service: Served, principal: Writer, body: PatchRequest) -> dict[str, Any]:
    """Submit a job; takes read access to its artifacts and write access to the project whose quota it uses."""

    def may_set(ref: Ref) -> None:
        head = service.registry.head(ref)
        check_tombstone(service.registry, ref, head, principal)
        if head is not None:
            check_free(head)

    submitter = Submitter(
        principal.name,
        lambda project: check_role(principal, project, Role.READER),
        lambda project: check_role(principal, project, Role.WRITER),
        may_set,
    )
    patching = patching_of(service)
    new = new_job(service.registry, patching, body, submitter)
    service.accounts.projects.ensure(new.project, principal)
    job = patching.queue.submit(new, patching.limits)
    service.accounts.log(principal, "submit job", project=job.project, subject=job.id)
    return job.to_json()


@router.get("/patches")
def jobs(
    service: Served,
    principal: Reader,
    project: Annotated[str | None, Query(max_length=255)] = None,
    state: Annotated[list[JobState] | None, Query()] = None,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> dict[str, Any]:
    """Jobs of the projects that the sender may read, the newest first.

    ``next`` is the ``before`` of the next page; null on the last.
    """
    page = visible_jobs(service, principal, project=project, states=state or (), before=before, limit=limit)
    return {"items": [job.to_json() for job in page], "next": page[-1].number if len(page) == limit else None}


@router.get("/patches/{id}")
def job(service: Served, principal: Reader, id: str) -> dict[str, Any]:
    """A job."""
    return visible_job(service, principal, id).to_json()


@router.post("/patches/{id}/cancel")
def cancel(service: Served, principal: Writer, id: str) -> dict[str, Any]:
    """Stop a job: at once while it waits, within seconds when it runs."""
    visible_job(service, principal, id, Role.WRITER)
    job = patching_of(service).queue.cancel(id, principal.name)
    service.accounts.log(principal, "cancel job", project=job.project, subject=job.id)
    return job.to_json()


@router.get("/patches/{id}/events", response_class=StreamingResponse, responses={200: {"content": {EVENT_STREAM: {}}}})
def follow(service: Served, principal: Reader, id: str, request: Request) -> StreamingResponse:
    """The job's progress as server-sent events; the last one, ``end``, has its result.

    Each event is the whole job, and its id the job's revision: whoever reconnects with ``Last-Event-ID`` misses
    nothing that matters, and gets nothing twice.
    """
    visible_job(service, principal, id)
    check_streams()
    seen = request.headers.get("last-event-id", "")
    stream = events(patching_of(service).queue, id, after=int(seen) if re.fullmatch("[0-9]{1,18}", seen) else 0)
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})

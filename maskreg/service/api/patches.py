"""``/api/v1/patches``: jobs that apply, merge or extract on the server; and ``/api/v1/sources``, what they can read.

What a request names is looked up, pinned and checked before it becomes a job, so that a worker need not trust it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from maskreg.artifact.manifest import Manifest
from maskreg.artifact.presence import part_lacking, read_manifest
from maskreg.disk import occupied
from maskreg.errors import NotFoundError, OutputExistsError, UsageError
from maskreg.ref import Card, Ref
from maskreg.service.access import Kept, Needs, SomeReader, Where
from maskreg.service.api.models import Body
from maskreg.service.auth.roles import Principal, Role, check_role
from maskreg.service.context import Served, Service
from maskreg.service.gateway.admission import check_tombstone
from maskreg.service.gateway.visibility import readable
from maskreg.service.jobs.config import JobConfig, clean_name
from maskreg.service.jobs.queue import NewJob
from maskreg.service.middleware import DocumentRoute
from maskreg.store.chain import check_free
from maskreg.workspace.verbs.extract import CardOptions, card_of
from maskreg.workspace.verbs.jobs import Job, JobState
from maskreg.workspace.workspace import as_name

router = APIRouter(tags=["patches"], route_class=DocumentRoute)

Writer = Annotated[Principal, Depends(Needs(Role.WRITER, Where.ANY, audited=Kept.BY_ROUTE))]

Name = Annotated[str, Field(min_length=1, max_length=128)]
Reference = Annotated[str, Field(min_length=1, max_length=400, description="[project/]name[:tag][@sha256:...]")]
Text = Annotated[str, Field(max_length=200)]
Description = Annotated[str, Field(max_length=4096)]


class ApplyRequest(Body):
    """Patch a checkpoint of the server with an artifact, and write the other side of it."""

    kind: Literal["apply"]
    artifact: Reference
    project: Name | None = Field(None, description="Whose quota the job uses; by default the artifact's project.")
    source: Name | None = Field(None, description="A checkpoint that the server offers; by default all are tried.")
    output: Name | None = Field(None, description="Name of the new checkpoint; by default the name of the artifact.")
    revert: bool = Field(False, description="Turn the target into the source.")


class MergeRequest(Body):
    """Merge updates of one source into one artifact of the registry."""

    kind: Literal["merge"]
    artifacts: Annotated[list[Reference], Field(min_length=1, max_length=32)]
    name: Reference
    method: Text = ""
    weights: Annotated[list[float], Field(max_length=32, description="By default 1 each.")] | None = None
    settings: Annotated[dict[Name, float | int | bool | Text], Field(max_length=32)] = Field(default_factory=dict)
    mask: Reference | None = Field(None, description="For methods that take one.")
    source: Name | None = Field(None, description="The checkpoint that the artifacts were made from.")
    description: Description = ""


class ExtractRequest(Body):
    """Compare two checkpoints of the server, and store what moved."""

    kind: Literal["extract"]
    source: Name
    target: Name
    name: Reference
    family: Text = ""
    method: Text = ""
    license: Text = ""
    description: Description = ""
    rule: Text = Field("exact", description="What counts as moved.")
    mask_only: bool = Field(False, description="Keep which coordinates moved, not to what.")
    reversible: bool = Field(False, description="Keep the source's values too.")
    allow_mismatch: bool = Field(False, description="Store tensors whole that one side lacks or has in another shape.")


PatchRequest = Annotated[ApplyRequest | MergeRequest | ExtractRequest, Field(discriminator="kind")]


class JobPage(BaseModel):
    """Jobs, the newest first."""

    items: list[Job]
    next: int | None = Field(description="Pass it as `before` for the next page; null on the last.")


def _jobs(service: Service) -> JobConfig:
    if service.jobs is None:
        raise NotFoundError("this server runs no jobs", hint="the operator can let it run some")
    return service.jobs


@router.get("/sources")
def sources(service: Served, principal: Writer) -> dict[str, list[str]]:
    """The names of the checkpoints that jobs can read, for accounts that can submit jobs."""
    return {"items": list(_jobs(service).offered())}


@router.post("/patches", status_code=202)
def submit(service: Served, principal: Writer, body: PatchRequest) -> Job:
    """Submit a job; takes read access to its artifacts and write access to the project whose quota it uses."""
    jobs = _jobs(service)
    match body:
        case ApplyRequest():
            new = _apply(service, jobs, body, principal)
        case MergeRequest():
            new = _merge(service, jobs, body, principal)
        case ExtractRequest():
            from maskreg.flow.extract.extraction import checked_rule

            name = _settable(service, body.name, principal)
            for checkpoint in (body.source, body.target):
                jobs.source(checkpoint)
            checked_rule(body.rule, mask_only=body.mask_only, reversible=body.reversible)
            values = {**body.model_dump(exclude={"kind"}), "name": str(name)}
            card_of({name: values[name] for name in CardOptions.__annotations__ if name in values})
            new = NewJob("extract", name.project, principal.name, f"{name.project}/{name.name}:{name.tag}", values)
    service.accounts.projects.ensure(new.project, principal)
    job = service.queue.submit(new)
    service.accounts.log(principal, "submit job", project=job.project, subject=job.id)
    return job


@router.get("/patches")
def list_(
    service: Served,
    principal: SomeReader,
    project: Annotated[str | None, Query(max_length=255)] = None,
    state: Annotated[list[JobState] | None, Query()] = None,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> JobPage:
    """Jobs of the projects that the sender can read, the newest first."""
    projects: Collection[str] | None = None
    if project is not None:
        check_role(principal, project, Role.READER)
        projects = (project,)
    elif principal.server_role < Role.READER:
        projects = readable(principal)
    _jobs(service)
    page = service.queue.list(
        projects=projects, hidden=principal.deleted, states=state or (), before=before, limit=limit
    )
    return JobPage(items=[_seen(job, principal) for job in page], next=page[-1].number if len(page) == limit else None)


@router.get("/patches/{id}")
def show(service: Served, principal: SomeReader, id: str) -> Job:
    """A job of a project that the sender can read; with digests alone of artifacts of other projects."""
    _jobs(service)
    job = service.queue.get(id)
    if principal.role(job.project) is Role.NONE:
        raise NotFoundError(f"there is no job {id}")
    return _seen(job, principal)


def canceler(job: Job, principal: Principal) -> Role:
    """The role in its project that a principal needs to cancel a job: another account's job is for admins."""
    return Role.WRITER if job.by == principal.name else Role.ADMIN


@router.post("/patches/{id}/cancel")
def cancel(service: Served, principal: Writer, id: str) -> Job:
    """Stop a job of one's own, or of a project that one is an admin of.

    It ends at once while it waits, within seconds when it runs.
    """
    job = show(service, principal, id)
    check_role(principal, job.project, canceler(job, principal))
    job = service.queue.cancel(id, principal.name)
    service.accounts.log(principal, "cancel job", project=job.project, subject=job.id)
    return _seen(job, principal)


def _seen(job: Job, by: Principal) -> Job:
    """The job with digests alone of artifacts whose projects a principal cannot read."""
    request = job.request
    texts = [*request.get("artifacts", ()), *filter(None, (request.get("artifact"), request.get("mask")))]
    hidden = [project for project in {Ref.parse(text).project for text in texts} if by.role(project) is Role.NONE]
    if not hidden:
        return job
    named = rf"(?<![\w./-])(?:{'|'.join(map(re.escape, hidden))})/[\w.:-]*\w(?:@(sha256:\w+))?"
    # Errors, notes and logs name artifacts too.
    told = re.sub(named, lambda found: found[1] or "…", json.dumps([request, job.result, job.error, job.log]))
    request, result, error, log = json.loads(told)
    return replace(job, request=request, result=result, error=error, log=tuple(log))


def _apply(service: Service, jobs: JobConfig, request: ApplyRequest, by: Principal) -> NewJob:
    ref = Ref.parse(request.artifact)
    check_role(by, ref.project, Role.READER)
    project = ref.project if request.project is None else Ref.parse(f"{request.project}/name").project
    check_role(by, project, Role.WRITER)
    pinned, manifest = _pinned(service, ref)
    part = "reverse" if request.revert else "delta"
    if part not in manifest.parts:
        raise part_lacking(str(ref), part, ref=ref)
    if request.source is not None:
        jobs.source(request.source)
    name = clean_name(ref.name if request.output is None else request.output, "an output")
    output = f"{project}/{name}"
    if occupied(jobs.outputs / output):
        raise OutputExistsError(output, reason="on the server", hint="choose another output")
    values = {"artifact": str(pinned), "source": request.source, "output": name, "revert": request.revert}
    return NewJob("apply", project, by.name, output, values)


def _merge(service: Service, jobs: JobConfig, request: MergeRequest, by: Principal) -> NewJob:
    from maskreg.flow.merge.recipe import Recipe

    name = _settable(service, request.name, by)
    if "mask" in request.settings:
        raise UsageError("the mask is no setting here", hint="give it as 'mask', beside 'settings'")
    references = [Ref.parse(text) for text in [*request.artifacts, *([request.mask] if request.mask else [])]]
    for ref in references:
        check_role(by, ref.project, Role.READER)
    weights = [1.0] * len(request.artifacts) if request.weights is None else request.weights
    recipe = Recipe.of(request.method, weights, request.settings)
    recipe.check(len(request.artifacts), masked=request.mask is not None)
    found = [_pinned(service, ref) for ref in references]
    for ref, manifest in found[: len(request.artifacts)]:
        if "delta" not in manifest.parts:
            raise part_lacking(str(ref), "delta", ref=ref)
    pinned = [str(ref) for ref, _ in found]
    if request.source is not None:
        jobs.source(request.source)
    Card("", "merge", description=request.description).checked()
    artifacts, mask = pinned[: len(request.artifacts)], pinned[-1] if request.mask else None
    values = {**request.model_dump(exclude={"kind"}), "name": str(name), "artifacts": artifacts, "mask": mask}
    return NewJob("merge", name.project, by.name, f"{name.project}/{name.name}:{name.tag}", values)


def _settable(service: Service, text: str, by: Principal) -> Ref:
    name = as_name(text)
    check_role(by, name.project, Role.WRITER)
    head = service.registry.head(name)
    check_tombstone(service.registry, name, head, by)
    if head is not None:
        check_free(head)
    return name


def _pinned(service: Service, ref: Ref) -> tuple[Ref, Manifest]:
    """The reference with the digest that it means now, which its name has or ever had, and the manifest."""
    registry = service.registry
    if ref.digest is not None and ref.digest not in {entry.digest for entry in registry.history(ref)}:
        # A digest alone gives no access to the artifacts of other projects.
        raise NotFoundError(f"{ref.with_tag(ref.tag)} never was {ref.digest.short}", history=ref)
    digest = registry.resolve(ref).digest
    return ref.pinned(digest), read_manifest(registry.store, digest)[1]

"""Names of a project: what each tag points to, its history, and changes to it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from maskreg import ref as refs
from maskreg.digest import Digest
from maskreg.errors import NotFoundError, UsageError
from maskreg.ref import Ref, ShortDigest, parse_artifact
from maskreg.registry.expiry import expire
from maskreg.registry.tags import Expected
from maskreg.service.access import Needs, ProjectReader
from maskreg.service.api import models
from maskreg.service.api.artifacts import Cursor, Limit
from maskreg.service.api.replies import NUMBER, cursor_of, etag_of, expected_of, expected_or_new, reply, values_of
from maskreg.service.auth.roles import Principal, Role, check_role
from maskreg.service.context import Served, Service
from maskreg.service.gateway.admission import check_quota, check_tombstone
from maskreg.service.gateway.verification import request_first_check
from maskreg.service.gateway.visibility import check_may_read
from maskreg.service.middleware import DocumentRoute
from maskreg.service.moves import Moves
from maskreg.service.observing import note_on_span
from maskreg.service.replicas import Replicas
from maskreg.store.base import REPLICA
from maskreg.store.reflog import RefEntry
from maskreg.workspace.verbs.log import changes
from maskreg.workspace.verbs.tag import annotate, remove, restore
from maskreg.workspace.verbs.tag import tag as set_tag

router = APIRouter(tags=["names"], route_class=DocumentRoute)

Part = Annotated[str, Path(max_length=255)]


async def ref_of_path(project: Part, name: Part, tag: Part) -> Ref:
    """The tag that a path names."""
    return Ref.parse(f"{project}/{name}:{tag}")


LONGEST_WAIT_S = 300
"""The longest that a request waits for a tag to move, in seconds."""

_READER = Needs(Role.READER)

At = Annotated[Ref, Depends(ref_of_path)]
IfSet = Annotated[Expected, Depends(expected_of)]
IfAny = Annotated[Expected, Depends(expected_or_new)]

History = models.Page[models.Entry]


_CHANGES: dict[int | str, dict[str, Any]] = {
    404: {"description": "There is no such tag, project or artifact that you can read."},
    409: {"description": "The tag is immutable."},
    412: {"description": "The tag is not in the state that the request names."},
    428: {"description": "The request names no state: send `If-Match`."},
}


class Paging(BaseModel):
    """Which page of a list."""

    model_config = ConfigDict(extra="forbid")

    limit: Limit = 50
    cursor: Cursor = ""


class Waiting(BaseModel):
    """How long to wait for a tag to move."""

    model_config = ConfigDict(extra="forbid")

    wait: float = Field(0, ge=0, le=LONGEST_WAIT_S, description="Seconds.")
    unless: models.DigestText | None = Field(None, description="Wait only while the tag points to this artifact.")
    replica: str | None = Field(
        None,
        pattern=f"^{REPLICA.pattern}$",
        description="Name of a process whose weights are at the artifact `unless`.",
    )


async def moves_of(request: Request) -> Moves:
    """The requests of this process that wait; for a route."""
    moves: Moves = request.app.state.moves
    return moves


@router.get("/projects/{project}/refs/{name}/{tag}", response_model=models.Tag)
async def one(
    ref: At,
    waiting: Annotated[Waiting, Query()],
    request: Request,
    service: Served,
    moves: Annotated[Moves, Depends(moves_of)],
    principal: ProjectReader,
) -> Response:
    """What a tag points to, with its card; with `wait`, as soon as it moves. The ETag is for `If-Match`."""
    head = _live(ref, await run_in_threadpool(service.registry.head, ref))
    if waiting.replica and waiting.unless and not principal.is_visitor:
        replicas: Replicas = request.app.state.replicas
        replicas.note(ref, waiting.replica, Digest(waiting.unless))
        note_on_span(ref=str(ref), replica=waiting.replica, version=waiting.unless, latest=str(head.digest))
    if waiting.wait and head.digest == waiting.unless:
        head = _live(ref, await moves.after(head, request, waiting.wait))
        # The sender's rights can have ended meanwhile.
        await run_in_threadpool(_READER, request)
    return reply(request, _tag(head), etag=etag_of(head.id))


@router.get("/projects/{project}/refs/{name}/{tag}/history", response_model=History)
def history(
    ref: At, paging: Annotated[Paging, Query()], request: Request, service: Served, principal: ProjectReader
) -> Response:
    """What a tag pointed to over time, the newest first; of a removed tag as well."""
    scope = f"history {ref.path}"
    before = values_of(scope, paging.cursor, NUMBER)[0] if paging.cursor else None
    head = service.registry.head(ref)
    if head is None:
        raise NotFoundError(f"there is no {ref}")
    entries = changes(service.registry.refs.until(head))
    older = [entry for entry in reversed(entries) if before is None or entry.n < before]
    items = [models.Entry.model_validate(entry) for entry in older[: paging.limit]]
    cursor = cursor_of(scope, items[-1].n) if len(older) > paging.limit else None
    return reply(request, History(items=items, next=cursor))


@router.put(
    "/projects/{project}/refs/{name}/{tag}",
    response_model=models.Tag,
    responses={**_CHANGES, 201: {"description": "The tag was not set before.", "model": models.Tag}},
)
def put(
    ref: At,
    body: models.SetTag,
    request: Request,
    service: Served,
    principal: Annotated[Principal, Depends(Needs(Role.WRITER, audited="set tag"))],
    expected: IfAny,
) -> Response:
    """Point a tag at an artifact that you can read; a tag that exists moves."""
    artifact = _readable(service, principal, body.artifact)
    before = service.registry.head(ref)
    check_tombstone(service.registry, ref, before, principal)
    service.accounts.projects.ensure(ref.project, principal)
    digest = artifact if isinstance(artifact, Digest) else artifact.digest
    assert digest is not None  # what can be read is pinned
    check_quota(service.accounts, service.registry, ref.project, digest)
    card = None if body.card is None else refs.Card(**body.card.model_dump())
    how: dict[str, Any] = {"immutable": body.immutable, "card": card, "by": principal.name, "expected": expected}
    set_tag(artifact, ref, **how, **service.here)
    request_first_check(service.accounts, service.registry, digest, principal.name)
    return _changed(request, service, ref, status=200 if before is not None and not before.deleted else 201)


@router.patch("/projects/{project}/refs/{name}/{tag}", response_model=models.Tag, responses=_CHANGES)
def patch(
    ref: At,
    body: models.EditCard,
    request: Request,
    service: Served,
    principal: Annotated[Principal, Depends(Needs(Role.WRITER, audited="annotate"))],
    expected: IfSet,
) -> Response:
    """Edit the card of a tag."""
    _live(ref, service.registry.head(ref))
    annotate(ref, **body.model_dump(exclude_none=True), by=principal.name, expected=expected, **service.here)
    return _changed(request, service, ref)


@router.delete("/projects/{project}/refs/{name}/{tag}", status_code=204, responses=_CHANGES)
def delete(
    ref: At,
    service: Served,
    principal: Annotated[Principal, Depends(Needs(Role.ADMIN, audited="remove"))],
    expected: IfSet,
) -> Response:
    """Remove a tag. Its history stays, and it can be restored until its artifact is collected."""
    _live(ref, service.registry.head(ref))
    remove(ref, by=principal.name, expected=expected, **service.here)
    return Response(status_code=204)


@router.post("/projects/{project}/refs/{name}/{tag}/restore", response_model=models.Tag, responses=_CHANGES)
def bring_back(
    ref: At,
    request: Request,
    service: Served,
    principal: Annotated[Principal, Depends(Needs(Role.ADMIN, audited="restore"))],
    expected: IfSet,
) -> Response:
    """Bring a removed tag back as it was. `If-Match` is the id of its latest entry, from the history."""
    if service.registry.head(ref) is None:
        raise NotFoundError(f"there is no {ref}")
    restore(ref, by=principal.name, expected=expected, **service.here)
    return _changed(request, service, ref)


class Expire(BaseModel):
    """How much of what a run has published stays."""

    model_config = ConfigDict(extra="forbid")

    keep: int = Field(ge=1, description="The newest versions, the latest included.")


class Expired(BaseModel):
    """What was deleted."""

    deleted: int = Field(description="Artifacts.")


@router.post("/projects/{project}/refs/{name}/{tag}/expire")
def expire_links(
    ref: At,
    body: Expire,
    service: Served,
    principal: Annotated[Principal, Depends(Needs(Role.WRITER, audited="expire links"))],
) -> Expired:
    """Delete what a tag has left behind and whose entries say that it can expire; what another tag ever had stays."""
    _live(ref, service.registry.head(ref))
    return Expired(deleted=expire(service.registry, ref, body.keep))


def _live(ref: Ref, head: RefEntry | None) -> RefEntry:
    # Not what the registry itself says of an unknown name: that lists similar ones, of other projects too.
    if head is None:
        raise NotFoundError(f"there is no {ref}")
    if head.deleted:
        raise NotFoundError(f"{ref} was removed by {head.by} at {head.at:%Y-%m-%d %H:%M:%S} UTC")
    return head


def _readable(service: Service, principal: Principal, text: str) -> Ref | Digest:
    given = parse_artifact(text)
    if isinstance(given, ShortDigest):
        raise UsageError(f"{text!r} is not a whole digest, nor a reference")
    if isinstance(given, Digest):
        check_may_read(service.registry, principal, given)
        return given
    check_role(principal, given.project, Role.READER)
    if given.digest is None:
        digest = _live(given, service.registry.head(given)).digest
        assert digest is not None  # it is live
        return given.pinned(digest)
    # A digest can be of any project, not only the one that stands before it.
    check_may_read(service.registry, principal, given.digest)
    return given


def _tag(head: RefEntry) -> models.Tag:
    return models.Tag.model_validate({**vars(head), "id": head.id, "ref": str(head.ref), "card": vars(head.card)})


def _changed(request: Request, service: Service, ref: Ref, status: int = 200) -> Response:
    head = _live(ref, service.registry.head(ref))
    return reply(request, _tag(head), etag=etag_of(head.id), status=status)

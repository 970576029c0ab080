"""``/whoami``, projects, tokens and the audit log; members and visibility are on the pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Generic, TypeVar

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from maskreg.catalog.query import Query as Search
from maskreg.errors import UsageError
from maskreg.service.access import Kept, Needs, ProjectReader, SignedIn, Visitor, Where
from maskreg.service.api.models import Body
from maskreg.service.auth.roles import EVERY_PROJECT, Audited, Principal, Project, Role, RoleName, name_of, role_named
from maskreg.service.auth.tokens import Scope
from maskreg.service.context import Served
from maskreg.service.middleware import DocumentRoute
from maskreg.workspace.verbs.accounts import MOST_CHARACTERS, MOST_DAYS, NewToken, Token

router = APIRouter(tags=["accounts"], route_class=DocumentRoute)

Admin = Annotated[Principal, Depends(Needs(Role.ADMIN))]
# The accounts record these changes themselves.
Owner = Annotated[Principal, Depends(Needs(Role.NONE, Where.SELF, audited=Kept.BY_ROUTE))]
ProjectOwner = Annotated[Principal, Depends(Needs(Role.ADMIN, audited=Kept.BY_ROUTE))]
Operator = Annotated[Principal, Depends(Needs(Role.ADMIN, Where.SERVER, audited=Kept.BY_ROUTE))]
ServerAdmin = Annotated[Principal, Depends(Needs(Role.ADMIN, Where.SERVER))]

Before = Annotated[int | None, Query(ge=0, lt=1 << 63)]
Limit = Annotated[int, Query(ge=1, le=1000)]

T = TypeVar("T")


class Items(BaseModel, Generic[T]):
    """A list."""

    items: list[T]


class WhoAmI(BaseModel):
    """Who sends the request."""

    name: str
    token: str
    projects: dict[str, RoleName]
    """The role by project; ``*`` is all projects."""

    signs: bool
    """Whether the server signs what is pushed."""


class NewProject(Body):
    """A project to make."""

    name: str = Field(max_length=255)
    public: bool = False
    reuse: bool = False
    """Take the name of a project that was deleted."""


class Quota(Body):
    """The limits of a project; null for none."""

    max_bytes: int | None = Field(None, ge=0, lt=1 << 63)
    max_artifacts: int | None = Field(None, ge=0, lt=1 << 63)


class TokenRequest(Body):
    """A token to make."""

    role: RoleName
    name: str = Field("", max_length=MOST_CHARACTERS)
    """Whose it is; the sender's when left out."""
    expires_s: int | None = Field(30 * 86400, gt=0, le=MOST_DAYS * 86400)
    """Seconds from now; null for never."""

    def scope(self, project: str) -> Scope:
        """What the token can do."""
        expires = None if self.expires_s is None else timedelta(seconds=self.expires_s)
        return Scope(project, role_named(self.role), expires)


def _not_kept(response: Response) -> None:
    # No cache, in a browser or elsewhere, keeps a token.
    response.headers["Cache-Control"] = "no-store"


@router.get("/whoami")
def whoami(service: Served, principal: SignedIn) -> WhoAmI:
    """Who sends the request, and what they can do."""
    projects = {project: name_of(role) for project, role in sorted(principal.grants.items())}
    signs = service.registry.trust.signer is not None
    return WhoAmI(name=principal.name, token=principal.token, projects=projects, signs=signs)


@router.get("/projects")
def projects(service: Served, principal: Visitor) -> Items[Project]:
    """The projects that the sender can read."""
    return Items(items=service.accounts.projects.visible(principal))


@router.post("/projects", status_code=201)
def create_project(service: Served, principal: Operator, project: NewProject) -> Project:
    """Make a project."""
    return service.accounts.projects.create(project.name, principal, public=project.public, reuse=project.reuse)


@router.get("/projects/{project}")
def project(service: Served, project: str, _: ProjectReader) -> Project:
    """A project."""
    return service.accounts.projects.get(project)


@router.patch("/projects/{project}/quota")
def limit_project(service: Served, project: str, principal: Operator, quota: Quota) -> Project:
    """Limit what a project can hold; a limit that is left out stays."""
    return service.accounts.projects.change(project, principal, **quota.model_dump(exclude_unset=True))


@router.delete("/projects/{project}", status_code=204, response_class=Response)
def delete_project(service: Served, project: str, principal: ProjectOwner) -> None:
    """Delete a project that has no artifacts; its name stays reserved."""
    service.accounts.projects.get(project)
    if service.registry.index.must_open().search(Search(project=project, limit=1)):
        raise UsageError(f"project {project} has artifacts", project=project)
    service.accounts.projects.delete(project, principal)


@router.get("/projects/{project}/tokens")
def project_tokens(service: Served, project: str, _: Admin) -> Items[Token]:
    """The tokens for a project."""
    _check_exists(service, project)
    return Items(items=service.accounts.tokens.list(project=project))


@router.post("/projects/{project}/tokens", status_code=201, dependencies=[Depends(_not_kept)])
def create_token(service: Served, project: str, principal: ProjectOwner, body: TokenRequest) -> NewToken:
    """Make a token for a project, for an account that becomes a member."""
    return service.accounts.tokens.create(body.name or principal.name, body.scope(project), principal)


@router.get("/projects/{project}/audit")
def project_audit(service: Served, project: str, _: Admin, before: Before = None, limit: Limit = 100) -> Items[Audited]:
    """What was changed in a project, newest first."""
    _check_exists(service, project)
    return Items(items=service.accounts.audit(project, before=before, limit=limit))


@router.get("/tokens")
def own_tokens(service: Served, principal: SignedIn) -> Items[Token]:
    """The sender's own tokens."""
    return Items(items=service.accounts.tokens.list(principal=principal.id))


@router.delete("/tokens/{token}")
def revoke_token(service: Served, token: str, principal: Owner) -> Token:
    """Revoke a token of one's own, or of a project that one is an admin of."""
    return service.accounts.tokens.revoke(token, principal)


@router.get("/audit")
def audit(service: Served, _: ServerAdmin, before: Before = None, limit: Limit = 100) -> Items[Audited]:
    """What was changed on the server, newest first."""
    return Items(items=service.accounts.audit(before=before, limit=limit))


def _check_exists(service: Served, project: str) -> None:
    if project != EVERY_PROJECT:
        service.accounts.projects.get(project)

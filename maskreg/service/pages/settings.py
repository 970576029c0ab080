"""Settings: one's own tokens, projects, and who may do what in them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field

from maskreg.service.access import Needs, Where
from maskreg.service.api import accounts as api
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Role, RoleName, Token
from maskreg.service.context import Served, Service
from maskreg.service.pages.rendering import page

router = APIRouter(prefix="/settings", tags=["pages"], default_response_class=HTMLResponse)

SignedIn = Annotated[Principal, Depends(Needs(Role.NOBODY, Where.SELF))]
Admin = Annotated[Principal, Depends(Needs(Role.ADMIN))]
ServerAdmin = Annotated[Principal, Depends(Needs(Role.ADMIN, Where.SERVER))]

Name = Annotated[str, Form(max_length=255)]
Days = Annotated[int, Form(ge=1, le=3650)]

ROLES = ("reader", "writer", "admin")

_SEE_OTHER = 303


@router.get("")
def own(request: Request, service: Served, principal: SignedIn) -> HTMLResponse:
    """What somebody may do, their tokens, and the projects that they manage."""
    return _own(request, service, principal)


@router.post("/tokens")
def create_own_token(
    request: Request, service: Served, principal: SignedIn, role: Annotated[RoleName, Form()], days: Days, project: Name
) -> HTMLResponse:
    """Make a token of one's own; it is shown once."""
    body = api.OwnTokenRequest(name="", role=role, expires_s=_seconds(days), project=project)
    created = api.create_own_token(service, principal, body)
    return _own(request, service, principal, secret=created.token)


@router.post("/tokens/{token}/revoke", response_class=RedirectResponse, status_code=_SEE_OTHER)
def revoke_own_token(service: Served, token: str, principal: SignedIn) -> RedirectResponse:
    """Revoke a token of one's own."""
    api.revoke_token(service, token, principal)
    return RedirectResponse("/settings", _SEE_OTHER)


@router.post("/projects", response_class=RedirectResponse, status_code=_SEE_OTHER)
def create_project(service: Served, principal: ServerAdmin, name: Name) -> RedirectResponse:
    """Make a project."""
    created = api.create_project(service, principal, api.NewProject(name=name))
    return RedirectResponse(f"/settings/p/{created.name}", _SEE_OTHER)


@router.get("/p/{project}")
def project(request: Request, service: Served, project: str, principal: Admin) -> HTMLResponse:
    """A project's visibility, members and tokens."""
    return _project(request, service, project, principal)


@router.post("/p/{project}/visibility", response_class=RedirectResponse, status_code=_SEE_OTHER)
def change_visibility(
    service: Served, project: str, principal: Admin, public: Annotated[bool, Form()] = False
) -> RedirectResponse:
    """Let everybody read a project, or its members alone."""
    api.change_project(service, project, principal, api.Visibility(public=public))
    return _back(project)


@router.post("/p/{project}/members", response_class=RedirectResponse, status_code=_SEE_OTHER)
def grant(
    service: Served, project: str, principal: Admin, name: Name, role: Annotated[RoleName, Form()]
) -> RedirectResponse:
    """Give somebody a role."""
    api.grant(service, project, name, principal, api.Grant(role=role))
    return _back(project)


@router.post("/p/{project}/members/remove", response_class=RedirectResponse, status_code=_SEE_OTHER)
def remove_member(service: Served, project: str, principal: Admin, name: Name) -> RedirectResponse:
    """Take somebody's role, with the tokens and sessions that could have used it."""
    api.revoke(service, project, name, principal)
    return _back(project)


class TokenForm(BaseModel):
    """The form that makes a token for somebody."""

    name: str = Field(max_length=255)
    role: RoleName
    days: int = Field(ge=1, le=3650)


@router.post("/p/{project}/tokens")
def create_token(
    request: Request, service: Served, project: str, principal: Admin, form: Annotated[TokenForm, Form()]
) -> HTMLResponse:
    """Make a token for a project; it is shown once."""
    body = api.TokenRequest(role=form.role, name=form.name, expires_s=_seconds(form.days))
    created = api.create_token(service, project, principal, body)
    return _project(request, service, project, principal, secret=created.token)


@router.post("/p/{project}/tokens/{token}/revoke", response_class=RedirectResponse, status_code=_SEE_OTHER)
def revoke_token(service: Served, project: str, token: str, principal: Admin) -> RedirectResponse:
    """Revoke a token for a project."""
    api.revoke_token(service, token, principal)
    return _back(project)


def _own(request: Request, service: Service, principal: Principal, secret: str = "") -> HTMLResponse:
    visible = service.accounts.projects.visible(principal)
    return page(
        request,
        principal,
        "settings.html.j2",
        tokens=_live(service.accounts.tokens.list(principal=principal.id)),
        projects=[project for project in visible if project.deleted_at is None],
        roles=ROLES,
        every=EVERY_PROJECT,
        secret=secret,
    )


def _project(request: Request, service: Service, project: str, principal: Principal, secret: str = "") -> HTMLResponse:
    return page(
        request,
        principal,
        "project.html.j2",
        project=service.accounts.projects.get(project),
        members=service.accounts.members.of(project),
        tokens=_live(service.accounts.tokens.list(project=project)),
        changes=service.accounts.audit(project, limit=20),
        roles=ROLES,
        secret=secret,
    )


def _live(tokens: list[Token]) -> list[Token]:
    return [token for token in tokens if token.revoked_at is None]


def _seconds(days: int) -> int:
    return int(timedelta(days=days).total_seconds())


def _back(project: str) -> RedirectResponse:
    return RedirectResponse(f"/settings/p/{project}", _SEE_OTHER)

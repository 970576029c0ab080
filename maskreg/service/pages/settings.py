"""Settings: one's own roles and tokens, and who can read and write a project."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from maskreg.service.access import Kept, Needs, Where
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Project, Role, RoleName, check_role, role_named
from maskreg.service.auth.tokens import Scope
from maskreg.service.context import Served, Service
from maskreg.service.gateway.admission import sizes_in
from maskreg.service.pages.rendering import page
from maskreg.workspace.verbs.accounts import MOST_DAYS

router = APIRouter(prefix="/settings", tags=["pages"], default_response_class=HTMLResponse)

# The accounts record these changes themselves.
SignedIn = Annotated[Principal, Depends(Needs(Role.NONE, Where.SELF, Kept.BY_ROUTE))]
Admin = Annotated[Principal, Depends(Needs(Role.ADMIN, audited=Kept.BY_ROUTE))]

ROLES = ("reader", "writer", "admin")
ENDED = 50
"""Tokens to show that have expired or were revoked, the newest."""

_SEE_OTHER = 303


@router.get("")
def own(request: Request, service: Served, principal: SignedIn) -> HTMLResponse:
    """One's own roles and tokens."""
    return _own(request, service, principal)


@router.post("/tokens")
def create_token(
    request: Request,
    service: Served,
    principal: SignedIn,
    role: Annotated[RoleName, Form()],
    days: Annotated[int, Form(ge=1, le=MOST_DAYS)],
    project: Annotated[str, Form(max_length=255)],
) -> HTMLResponse:
    """Make a token of one's own, with at most the sender's rights; it is shown once.

    A sender with a token must be an admin, so that a stolen token cannot be exchanged for one that lasts.
    """
    most = role_named(role)
    if project != EVERY_PROJECT and project not in {row.name for row in _projects(service, principal)}:
        return _own(request, service, principal, fault=f"Project: there is no project {project}.")
    if project != EVERY_PROJECT or principal.token:
        check_role(principal, project, Role.ADMIN if principal.token else most)
    made = service.accounts.tokens.create(principal.name, Scope(project, most, timedelta(days=days)), principal)
    return _own(request, service, principal, secret=made.token)


@router.post("/tokens/{token}/revoke", response_class=RedirectResponse, status_code=_SEE_OTHER)
def revoke_token(service: Served, token: str, principal: SignedIn) -> RedirectResponse:
    """Revoke a token of one's own."""
    service.accounts.tokens.revoke(token, principal)
    return RedirectResponse("/settings", _SEE_OTHER)


@router.get("/p/{project}")
def project(request: Request, service: Served, project: str, principal: Admin) -> HTMLResponse:
    """A project's visibility and members; the project ``*`` stands for roles in all projects."""
    shown = _existing(service, project)
    members = service.accounts.members.of(project)
    sizes = sizes_in(service.registry, project).values() if shown else ()
    values = {"project": shown, "members": members, "sizes": list(sizes), "roles": ROLES}
    return page(request, principal, "project.html.j2", status=200, name=project, **values)


@router.post("/p/{project}/visibility", response_class=RedirectResponse, status_code=_SEE_OTHER)
def change_visibility(
    service: Served, project: str, principal: Admin, public: Annotated[bool, Form()] = False
) -> RedirectResponse:
    """Let every visitor read a project, or its members alone."""
    service.accounts.projects.change(project, principal, public=public)
    return RedirectResponse(f"/settings/p/{project}", _SEE_OTHER)


@router.post("/p/{project}/members", response_class=RedirectResponse, status_code=_SEE_OTHER)
def change_member(
    service: Served,
    project: str,
    principal: Admin,
    name: Annotated[str, Form(max_length=255)],
    role: Annotated[RoleName | None, Form()] = None,
) -> RedirectResponse:
    """Give an account a role; without one, take its role, with the tokens and sessions that could have used it."""
    _existing(service, project)
    if role is None:
        service.accounts.members.revoke(project, name, principal)
    else:
        service.accounts.members.grant(project, name, role_named(role), principal)
    return RedirectResponse(f"/settings/p/{project}", _SEE_OTHER)


def _existing(service: Service, project: str) -> Project | None:
    """A project, which a form must not make by a typo; None for all projects."""
    return None if project == EVERY_PROJECT else service.accounts.projects.get(project)


def _projects(service: Service, principal: Principal) -> list[Project]:
    return [row for row in service.accounts.projects.visible(principal) if row.deleted_at is None]


def _own(
    request: Request, service: Service, principal: Principal, *, secret: str = "", fault: str = ""
) -> HTMLResponse:
    now, tokens = datetime.now(UTC), service.accounts.tokens.list(principal=principal.id, revoked=True)
    ended = [token for token in tokens if token.revoked_at or (token.expires_at or now) < now]
    return page(
        request,
        principal,
        "settings.html.j2",
        status=404 if fault else 200,
        tokens=[token for token in tokens if token not in ended],
        ended=ended[:ENDED],
        projects=_projects(service, principal),
        roles=ROLES,
        every=EVERY_PROJECT,
        secret=secret,
        fault=fault,
        now=now,
    )

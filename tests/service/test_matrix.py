"""Every route for every sender and every project: who is let in, worked out from the demand that is on record.

What is tested is who gets to a route, so none of them does its work. One that says nothing about whom it lets in does
not get this far: the application refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import wraps

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from sqlalchemy import update

from maskreg.service.access import Needs, Public, Where
from maskreg.service.app import create_app, routers
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import TokenRow
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Role
from maskreg.service.auth.tokens import Scope
from tests.service.serving import ROOT, asking, headers, service_in

OWN, OTHER, PUBLIC, MISSING, DELETED = "team", "elsewhere", "open", "nothing", "closed"
PROJECTS = (OWN, OTHER, PUBLIC, MISSING, DELETED)

DEMANDS = """
none nowhere: GET /livez
none nowhere: GET /readyz
none nowhere: GET /sign-in
none nowhere: POST /sign-in
none nowhere: GET /sign-in/oidc
none nowhere: GET /sign-in/oidc/callback
none nowhere: POST /sign-out
none nowhere: GET /static/{version}/{name}
none any: GET /
none any: GET /api/v1/projects
none any: GET /compare
none any: GET /docs
none any: GET /docs/{topic}
none any: GET /glossary
none any: GET /runs
reader any: GET /api/v1/artifacts
reader any: GET /api/v1/artifacts/{digest}
reader any: GET /api/v1/clock
reader any: GET /api/v1/objects
reader any: GET /api/v1/objects/{key}
reader any: HEAD /api/v1/objects/{key}
reader any: GET /api/v1/patches
reader any: GET /api/v1/patches/{id}
reader any: GET /jobs
reader any: GET /jobs/{id}
writer any: POST /api/v1/artifacts/{digest}/verify
writer any: DELETE /api/v1/objects/{key}
writer any: PUT /api/v1/objects/{key}
writer any: POST /api/v1/patches
writer any: POST /api/v1/patches/{id}/cancel
writer any: GET /api/v1/sources
writer any: POST /jobs/{id}/cancel
writer any: POST /api/v1/uploads
writer any: POST /api/v1/uploads/finished
none self: GET /api/v1/tokens
none self: DELETE /api/v1/tokens/{token}
none self: GET /api/v1/whoami
none self: GET /settings
none self: POST /settings/tokens
none self: POST /settings/tokens/{token}/revoke
reader project: GET /api/v1/projects/{project}
reader project: GET /api/v1/projects/{project}/refs/{name}/{tag}
reader project: GET /api/v1/projects/{project}/refs/{name}/{tag}/history
reader project: GET /p/{project}
reader project: GET /runs/{project}/{reference}
reader project: GET /p/{project}/{reference}
reader project: GET /p/{project}/{reference}/artifact.tar
reader project: GET /p/{project}/{reference}/mask.safetensors
writer project: PATCH /api/v1/projects/{project}/refs/{name}/{tag}
writer project: PUT /api/v1/projects/{project}/refs/{name}/{tag}
writer project: GET /p/{project}/{reference}/readme
writer project: POST /p/{project}/{reference}/readme
writer project: POST /api/v1/projects/{project}/refs/{name}/{tag}/expire
admin project: DELETE /api/v1/projects/{project}
admin project: GET /api/v1/projects/{project}/audit
admin project: DELETE /api/v1/projects/{project}/refs/{name}/{tag}
admin project: POST /api/v1/projects/{project}/refs/{name}/{tag}/restore
admin project: GET /api/v1/projects/{project}/tokens
admin project: POST /api/v1/projects/{project}/tokens
admin project: GET /activity/{project}
admin project: GET /settings/p/{project}
admin project: POST /settings/p/{project}/members
admin project: POST /settings/p/{project}/visibility
admin server: GET /activity
admin server: GET /api/v1/audit
admin server: POST /api/v1/projects
admin server: PATCH /api/v1/projects/{project}/quota
admin server: GET /metrics
"""
"""The role that a sender needs, where, and for what: a route that is new or opens to others changes this table."""

LET_IN = 299
"""The status of an answer to a sender who was let in."""

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}


@dataclass(frozen=True)
class Sender:
    """The sender of a request."""

    token: str = ""
    valid: bool = True
    grants: Mapping[str, Role] = field(default_factory=dict)

    def role(self, project: str) -> Role:
        if project == DELETED:
            return Role.NONE
        held = max(self.grants.get(project, Role.NONE), self.grants.get(EVERY_PROJECT, Role.NONE))
        return max(held, Role.READER) if project == PUBLIC else held


@dataclass(frozen=True)
class Matrix:
    """The application's routes and the senders."""

    app: FastAPI
    routes: Mapping[tuple[str, str], Mapping[str, str]]
    senders: Mapping[str, Sender]


class LetIn(Exception):
    """The sender is let in; what the route does then is not this test's."""


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    service = service_in(tmp_path_factory.mktemp("home"))
    senders = _senders(service.accounts)
    app = create_app(service)
    app.exception_handler(LetIn)(lambda *_: Response(status_code=LET_IN))
    routes = {
        (method, f"{prefix}{route.path_format}"): (route.openapi_extra or {})["x-access"]
        for prefix, router in routers()
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in METHODS & set(route.methods or ())
    }
    check = Needs.__call__

    @wraps(check)
    def stop(self: Needs, request: Request) -> Principal:
        check(self, request)
        raise LetIn

    welcome = Public.__call__

    @wraps(welcome)
    async def stop_all(self: Public, request: Request) -> Principal:
        await welcome(self, request)
        raise LetIn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Needs, "__call__", stop)
        patch.setattr(Public, "__call__", stop_all)
        yield Matrix(app, routes, senders)
    service.close()


def _senders(accounts: Accounts) -> dict[str, Sender]:
    for name in (PUBLIC, DELETED):
        accounts.projects.ensure(name, ROOT)
    accounts.projects.change(PUBLIC, ROOT, public=True)
    senders = {"visitor": Sender(), "wrong": Sender("mr_" + "0" * 16 + "_" + "A" * 43, valid=False)}
    expired = accounts.tokens.create("old", Scope(OWN, Role.ADMIN, timedelta(days=1)), ROOT)
    with accounts.database.write() as connection:
        earlier = datetime.now(UTC) - timedelta(seconds=1)
        connection.execute(update(TokenRow).where(TokenRow.id == expired.id).values(expires_at=earlier))
    revoked = accounts.tokens.create("gone", Scope(EVERY_PROJECT, Role.ADMIN), ROOT)
    accounts.tokens.revoke(revoked.id, ROOT)
    closed = accounts.tokens.create("closed", Scope(DELETED, Role.ADMIN), ROOT)
    accounts.projects.delete(DELETED, ROOT)
    for name, token in (("expired", expired), ("revoked", revoked), ("of a deleted project", closed)):
        senders[name] = Sender(token.token, valid=False)
    for project in (OWN, OTHER, EVERY_PROJECT):
        for role in (Role.READER, Role.WRITER, Role.ADMIN):
            made = accounts.tokens.create(f"{role.name} {project}".lower(), Scope(project, role), ROOT)
            senders[f"{role.name.lower()} of {project}"] = Sender(made.token, grants={project: role})
    return senders


def expected(access: Mapping[str, str], sender: Sender, project: str) -> int:
    role = Role[access["role"].upper()]
    where = Where(access["where"])
    if where is Where.NOWHERE:
        return LET_IN
    if not sender.valid:
        return 401
    visitor = not sender.token
    refusal = 401 if visitor else 403
    match where:
        case Where.SELF:
            return 401 if visitor else LET_IN
        case Where.ANY:
            highest = max(sender.role(PUBLIC), *sender.grants.values(), Role.NONE)
            return LET_IN if highest >= role else refusal
        case Where.SERVER:
            return LET_IN if sender.role(EVERY_PROJECT) >= role else refusal
        case Where.PROJECT:
            if sender.role(project) is Role.NONE and role > Role.NONE:
                return 401 if visitor else 404
            return LET_IN if sender.role(project) >= role else refusal


async def test_every_route_lets_in_only_whom_it_demands(matrix: Matrix) -> None:
    wrong: list[str] = []
    client, count = asking(matrix.app), 0
    # The first route of each demand is asked for every case, the others for one of each outcome.
    asked: set[tuple[object, ...]] = set()
    for (method, path), access in matrix.routes.items():
        names = [part.strip("{}").partition(":")[0] for part in path.split("/") if part.startswith("{")]
        for project in PROJECTS if "project" in names else [""]:
            address = path
            for name in names:
                value = project if name == "project" else "1" * 16
                address = address.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
            for kind, sender in matrix.senders.items():
                status = expected(access, sender, project)
                cases = {(*access.values(), project, kind), (method, path, status)}
                if cases <= asked:
                    continue
                asked |= cases
                answer = await client.request(method, address, headers=headers(sender.token))
                count += 1
                if answer.status_code != status:
                    wrong.append(f"{method} {address} by {kind}: {answer.status_code}, not {status}")
    assert wrong == []
    assert count > 4 * len(matrix.routes)


def test_every_route_demands_what_was_decided(matrix: Matrix) -> None:
    found = {f"{access['role']} {access['where']}: {method} {path}" for (method, path), access in matrix.routes.items()}
    assert found == set(DEMANDS.strip().splitlines())


def test_what_the_document_says_is_what_holds(matrix: Matrix) -> None:
    document = matrix.app.openapi()
    described = {
        (method.upper(), path): operation["x-access"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert described.items() <= matrix.routes.items()
    assert {route for route in matrix.routes if route[1].startswith("/api/")} <= set(described)

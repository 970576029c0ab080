"""What each route demands of who sends a request. A route that demands nothing on record does not start the server.

A route says it in its signature::

    @router.get("/projects/{project}/artifacts")
    def artifacts(project: str, principal: Annotated[Principal, Depends(Needs(Role.READER))]) -> ...

The demand also stands in the OpenAPI document as ``x-access``, from which the tests make the matrix of routes, roles
and projects. Projects that the sender may not read do not exist for them: 404, as for any other name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request, params
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from maskreg.errors import UnauthenticatedError
from maskreg.service.auth.roles import Principal, Role, check_held, check_role, refuse_visitor
from maskreg.service.context import service_of
from maskreg.service.documents import DocumentRoute
from maskreg.service.sessions import address_of, authenticate, check_origin, session_principal, shows_token, submitted


class Where(StrEnum):
    """Where the sender has to have the role."""

    PROJECT = "project"
    """In the project that the path names as ``{project}``."""
    ANY = "any"
    """In some project; the route itself leaves out what the sender may not see."""
    SERVER = "server"
    """In every project."""
    SELF = "self"
    """The sender has to be signed in; the route deals with what is theirs."""
    NOWHERE = "nowhere"
    """Nobody has to sign in, and nobody looks who it is."""


def principal_of(request: Request) -> Principal:
    """Who sends a request, by its bearer token, else by the session of a browser; a visitor without both.

    Raises:
        UnauthenticatedError: the token is not valid.
    """
    if not shows_token(request):
        return session_principal(request) or service_of(request).accounts.visitor()
    scheme, _, secret = request.headers["authorization"].strip().partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise UnauthenticatedError("the Authorization header is not of the form 'Bearer TOKEN'")
    return authenticate(request, secret.strip())


@dataclass(frozen=True)
class Demand:
    """What a route demands.

    Attributes:
        role: the lowest role that will do.
        where: where it has to be held.
    """

    role: Role
    where: Where = Where.PROJECT


class Public(Demand):
    """The demand of a route that everybody may use.

    Not waiting for anything, it runs at once, where FastAPI would send a plain function to a thread: all threads may be
    waiting for a store that hangs, and the process lives all the same.
    """

    async def __call__(self, request: Request, proof: Annotated[str, Depends(submitted)]) -> Principal:
        """Let everybody in, and look who it is of nobody.

        Raises:
            NotAllowedError: a page of another site made a browser send the request.
        """
        check_origin(request, proof)
        return Principal()


class Needs(Demand):
    """The demand of any other route; called for each request, it returns who sends it."""

    def __call__(self, request: Request, proof: Annotated[str, Depends(submitted)]) -> Principal:
        """Check the sender of a request.

        Args:
            request: the request.
            proof: that it comes from a page of this server, where a browser sends it.

        Raises:
            UnauthenticatedError: a visitor may not, or the token is not valid.
            NotAllowedError: the role is too low; or a page of another site made a browser send the request.
            NotFoundError: there is no such project for this sender.
            RateLimitedError: the sender has sent too many requests.
        """
        check_origin(request, proof)
        principal = principal_of(request)
        # For the log of the request, and for that of changes.
        request.state.by, request.state.principal = principal.name, principal
        _count(request, principal)
        match self.where:
            case Where.SELF:
                refuse_visitor(principal)
            case Where.PROJECT:
                check_role(principal, request.path_params["project"], self.role)
            case Where.SERVER:
                check_held(principal, principal.server_role, self.role, "on this server")
            case Where.ANY:
                check_held(principal, principal.highest, self.role, "")
        return principal


def _count(request: Request, principal: Principal) -> None:
    if (limits := service_of(request).limits) is None:
        return
    if principal.is_visitor:
        limits.addresses.take(address_of(request))
    else:
        limits.accounts.take(principal.id)


def record(router: APIRouter | FastAPI) -> None:
    """Write the demand of each route of a router into the OpenAPI document.

    It has to be called before the router is included in an application, which then hides its routes.

    Raises:
        AssertionError: a route demands nothing, or several things, or cannot demand anything; or it reads a document
            that may mean two things.
    """
    for route in router.routes:
        if isinstance(router, FastAPI) and not isinstance(route, APIRoute):
            continue  # FastAPI's own, such as the OpenAPI document
        assert isinstance(route, APIRoute), f"{route} cannot say whom it lets in"
        reads_document = route.body_field is not None and not isinstance(route.body_field.field_info, params.Form)
        assert not reads_document or isinstance(route, DocumentRoute), f"{route.path} takes a key twice"
        demands = list(_demands(route.dependant))
        assert len(demands) == 1, f"{route.path} demands {demands or 'nothing'}"
        access = {"role": demands[0].role.name.lower(), "where": demands[0].where.value}
        route.openapi_extra = {**(route.openapi_extra or {}), "x-access": access}


def _demands(dependant: Dependant) -> Iterator[Demand]:
    if isinstance(dependant.call, Public | Needs):
        yield dependant.call
    for inner in dependant.dependencies:
        yield from _demands(inner)


PUBLIC = Depends(Public(Role.NOBODY, Where.NOWHERE))
"""The demand of a route that everybody may use, for a router's ``dependencies``."""

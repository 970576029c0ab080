"""What each route demands of the sender of a request, and what of it the audit log keeps.

A route says both in its signature. A route that says nothing does not start the server::

    @router.put("/projects/{project}/refs/{name}/{tag}")
    def put(principal: Annotated[Principal, Depends(Needs(Role.WRITER, audited="set tag"))], ...) -> ...

The demand also stands in the OpenAPI document as ``x-access``, from which the tests make the matrix of routes, roles
and projects. A project that the sender cannot read answers 404, as any other name.

A sender is known by a bearer token, else by the session cookie of a browser. Browsers send the cookie with requests
that pages of other sites make them send (CSRF), so a request that can change something has to come from a page of this
server, by the headers ``Sec-Fetch-Site`` and ``Origin``, which no page can forge. No browser adds a bearer token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Request, Response, params
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskreg.errors import MaskregError, NotAllowedError, UnauthenticatedError
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import Principal, Role, check_held, check_role, refuse_visitor
from maskreg.service.auth.tokens import LIFETIME
from maskreg.service.context import service_of
from maskreg.service.middleware import DocumentRoute
from maskreg.service.problems import problem_of, public_of
from maskreg.settings.credentials import is_loopback

COOKIE = "maskreg_session"
"""The name of the session cookie."""

_SAFE = ("GET", "HEAD", "OPTIONS")


class Where(StrEnum):
    """Where the sender has to have the role."""

    PROJECT = "project"
    """In the project that the path names as ``{project}``."""
    ANY = "any"
    """In some project; the route itself leaves out what the sender cannot see."""
    SERVER = "server"
    """In every project."""
    SELF = "self"
    """The sender has to be signed in; the route deals with the sender's own."""
    NOWHERE = "nowhere"
    """Anonymous requests are allowed and not authenticated."""


class Entry(NamedTuple):
    """An entry of the audit log, besides who and when."""

    action: str
    project: str
    subject: str


class Kept(Enum):
    """What an unsafe route says of the audit log in place of an action."""

    BY_ROUTE = "the route records its change, in the transaction that makes it"
    NOT = "the route changes nothing that others see"


Audited = str | Kept | Callable[[Request], Entry | None]
"""An action, whose subject the path names; a function from the request to the entry; or why there is none here."""


@dataclass(frozen=True)
class Demand:
    """What a route demands, and what the audit log keeps of it."""

    role: Role
    where: Where = Where.PROJECT
    audited: Audited | None = None


class Public(Demand):
    """The demand of a route for every client.

    It does not wait for anything, so it runs at once; FastAPI would send a plain function to a thread, and all threads
    can be waiting for a store that hangs.
    """

    async def __call__(self, request: Request) -> Principal:
        """Allow an anonymous request."""
        check_origin(request)
        return Principal()


class Needs(Demand):
    """The demand of any other route; called for each request, it returns the sender."""

    def __call__(self, request: Request) -> Principal:
        """Check the sender of a request."""
        check_origin(request)
        principal = principal_of(request)
        # For the log of requests and the audit log.
        request.state.by, request.state.principal = principal.name, principal
        if (limits := service_of(request).limits) is not None:
            (limits.addresses if principal.is_visitor else limits.accounts).take(client_of(request, principal))
        match self.where:
            case Where.SELF:
                refuse_visitor(principal)
            case Where.PROJECT:
                check_role(principal, request.path_params["project"], self.role)
            case Where.SERVER:
                check_held(principal, principal.server_role, self.role, "on this server")
            case Where.ANY:
                check_held(principal, principal.highest, self.role, "")
        if callable(self.audited):
            request.state.audited = self.audited(request)
        elif isinstance(self.audited, str):
            request.state.audited = _entry(self.audited, **request.path_params)
        return principal


def _entry(action: str, *, project: str = "", **names: str) -> Entry:
    # A tag is named as people write it.
    if "tag" in names:
        names = {"reference": f"{names['name']}:{names['tag']}"}
    subject = "/".join([project, *names.values()] if "reference" in names else names.values())
    return Entry(action, project, subject)


def principal_of(request: Request) -> Principal:
    """The sender of a request, by the bearer token, else by the session of a browser; a visitor without both."""
    accounts = service_of(request).accounts
    if not _shows_token(request):
        cookie = request.cookies.get(COOKIE, "")
        return (accounts.sessions.principal(cookie) if cookie else None) or accounts.visitor()
    scheme, _, secret = request.headers["authorization"].strip().partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise UnauthenticatedError("the Authorization header is not of the form 'Bearer TOKEN'")
    return authenticate(request, secret.strip())


def authenticate(request: Request, token: str) -> Principal:
    """The owner of a token; an address that tries many wrong ones has to wait."""
    service, address = service_of(request), address_of(request)
    if service.limits is not None:
        service.limits.failures.take(address, 0)
    try:
        return service.accounts.authenticate(token)
    except UnauthenticatedError:
        if service.limits is not None:
            service.limits.failures.take(address)
        raise


def address_of(request: Request) -> str:
    """The address of the client; a proxy on this machine can say another."""
    return request.client.host if request.client else ""


def client_of(request: Request, principal: Principal) -> str:
    """Whose share of the server a request uses: an account's, or a visitor's address."""
    return address_of(request) if principal.is_visitor else principal.id


def sign_in(request: Request, response: Response, principal: Principal) -> None:
    """Begin a session: the browser gets a cookie with the answer; its old session ends."""
    sessions = service_of(request).accounts.sessions
    if old := request.cookies.get(COOKIE):
        sessions.end(old)
    response.set_cookie(
        COOKIE,
        sessions.begin(principal),
        max_age=int(LIFETIME.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=not is_loopback(request.url.hostname or ""),
    )


def sign_out(request: Request, response: Response) -> None:
    """End the session of a browser."""
    if cookie := request.cookies.get(COOKIE):
        service_of(request).accounts.sessions.end(cookie)
    response.delete_cookie(COOKIE, httponly=True, samesite="lax")


def check_origin(request: Request) -> None:
    """Refuse a request that can change something and that a page of another site made a browser send.

    Browsers leave ``Sec-Fetch-Site`` out where a server has no certificate, and send ``Origin`` with every unsafe
    method. A request with a session and neither header is of no browser that is still in use, and is refused.
    """
    if request.method in _SAFE or _shows_token(request):
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_own = site in ("same-origin", "none")
    elif origin is not None:
        is_own = urlsplit(origin).netloc == request.headers.get("host", "")
    else:
        is_own = COOKIE not in request.cookies
    if not is_own:
        raise NotAllowedError("the request comes from a page of another site")


def _shows_token(request: Request) -> bool:
    # An empty header is no token.
    return bool(request.headers.get("authorization", "").strip())


class Recorded:
    """Wraps an application, and writes the audit log before the client is told that its request succeeded."""

    def __init__(self, app: ASGIApp, accounts: Accounts) -> None:
        self.app, self._accounts = app, accounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        unrecorded: MaskregError | None = None

        async def recorded(message: Message) -> None:
            nonlocal unrecorded
            if message["type"] == "http.response.start" and message["status"] < 400:
                state = scope.get("state", {})
                if (entry := state.get("audited")) is not None:
                    try:
                        await run_in_threadpool(self._accounts.log, state["principal"], *entry)
                    except MaskregError as error:
                        unrecorded = error
            if unrecorded is None:
                await send(message)

        await self.app(scope, receive, recorded)
        if unrecorded is not None:
            # The client is told of a failure and tries again; both attempts are recorded.
            await problem_of(public_of(unrecorded))(scope, receive, send)


def describe(router: APIRouter | FastAPI) -> None:
    """Check the demand of each route of a router, and write it into the OpenAPI document.

    It has to be called before the router is included in an application, which then hides its routes.
    """
    for route in router.routes:
        if isinstance(router, FastAPI) and not isinstance(route, APIRoute):
            continue  # FastAPI's own, such as the OpenAPI document
        assert isinstance(route, APIRoute), f"{route} cannot demand anything"
        reads_document = route.body_field is not None and not isinstance(route.body_field.field_info, params.Form)
        assert not reads_document or isinstance(route, DocumentRoute), f"{route.path} takes a key twice"
        demands = list(_demands(route.dependant))
        assert len(demands) == 1, f"{route.path} demands {demands or 'nothing'}"
        is_safe = (route.methods or set()) <= set(_SAFE)
        assert is_safe or demands[0].audited is not None, f"{route.path} does not say what the audit log keeps of it"
        access = {"role": demands[0].role.name.lower(), "where": demands[0].where.value}
        route.openapi_extra = {**(route.openapi_extra or {}), "x-access": access}


def _demands(dependant: Dependant) -> Iterator[Demand]:
    if isinstance(dependant.call, Public | Needs):
        yield dependant.call
    for inner in dependant.dependencies:
        yield from _demands(inner)


PUBLIC = Depends(Public(Role.NONE, Where.NOWHERE))
"""The demand of a route for every client, for a router's ``dependencies``."""

Visitor = Annotated[Principal, Depends(Needs(Role.NONE, Where.ANY))]
"""Any sender."""

SignedIn = Annotated[Principal, Depends(Needs(Role.NONE, Where.SELF))]
"""A sender with an account."""

ProjectReader = Annotated[Principal, Depends(Needs(Role.READER))]
"""A sender who reads the project of the path."""

SomeReader = Annotated[Principal, Depends(Needs(Role.READER, Where.ANY))]
"""A sender who reads some project."""

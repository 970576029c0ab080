"""Signing in with a token or an OpenID provider, and out."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from maskreg.errors import NotFoundError, UnauthenticatedError
from maskreg.service import access
from maskreg.service.access import Kept, Public, Where
from maskreg.service.auth.openid import Attempt, OpenId
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.context import Served, Service
from maskreg.service.pages.rendering import page
from maskreg.settings.credentials import is_loopback

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

COOKIE = "maskreg_sign_in"
"""Ties an answer of the provider to the browser that began."""

_PATH = "/sign-in/oidc"
_LIFETIME_S = 600
_SEE_OTHER = 303

# The accounts record sessions themselves.
Anonymous = Annotated[Principal, Depends(Public(Role.NONE, Where.NOWHERE, Kept.BY_ROUTE))]

Text = Annotated[str, Query(max_length=4000)]


def local(address: str) -> str:
    """An address of this server; the first page in place of an address elsewhere."""
    parts = urlsplit(address)
    # Browsers take a backslash for a slash, and a second slash for the beginning of a host.
    is_path = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_path and not parts.netloc and not parts.scheme else "/"


@router.get("/sign-in")
def form(request: Request, service: Served, principal: Anonymous, next: Text = "/") -> HTMLResponse:
    """The form to sign in with."""
    return _form(request, service, principal, next)


@router.post("/sign-in", response_class=HTMLResponse)
def sign_in(
    request: Request,
    service: Served,
    principal: Anonymous,
    token: Annotated[str, Form(max_length=1000)],
    next: Annotated[str, Form(max_length=4000)] = "/",
) -> Response:
    """Sign in with a token: the session has the rights of the token, and ends with it."""
    answer = RedirectResponse(local(next), _SEE_OTHER)
    try:
        access.sign_in(request, answer, access.authenticate(request, token.strip()))
    except UnauthenticatedError:
        return _form(request, service, principal, next, failed=True)
    return answer


@router.post("/sign-out", response_class=RedirectResponse, status_code=_SEE_OTHER)
def sign_out(request: Request, principal: Anonymous) -> Response:
    """End the session."""
    answer = RedirectResponse("/", _SEE_OTHER)
    access.sign_out(request, answer)
    return answer


def _form(request: Request, service: Service, principal: Principal, next: str, *, failed: bool = False) -> HTMLResponse:
    values = {"next": local(next), "failed": failed, "people": service.openid is not None}
    return page(request, principal, "sign-in.html.j2", status=401 if failed else 200, **values)


@router.get(_PATH, status_code=_SEE_OTHER, response_class=RedirectResponse)
async def to_provider(request: Request, service: Served, principal: Anonymous, next: Text = "/") -> RedirectResponse:
    """Send the browser to the provider."""
    provider, attempt = _provider(service), Attempt()
    answer = RedirectResponse(await provider.begin(attempt, _callback(request)), _SEE_OTHER)
    # Lax, because the provider sends the browser back, and a stricter cookie would stay at home.
    answer.set_cookie(
        COOKIE,
        f"{attempt.cookie}.{local(next)}",
        max_age=_LIFETIME_S,
        path=_PATH,
        httponly=True,
        samesite="lax",
        secure=not is_loopback(request.url.hostname or ""),
    )
    return answer


@router.get(f"{_PATH}/callback", status_code=_SEE_OTHER, response_class=RedirectResponse)
async def from_provider(
    request: Request, service: Served, principal: Anonymous, code: Text = "", state: Text = "", error: Text = ""
) -> RedirectResponse:
    """Take the browser back, signed in."""
    provider = _provider(service)
    cookie, _, next = request.cookies.get(COOKIE, "").partition(".")
    if not cookie:
        raise UnauthenticatedError("this sign-in took too long, or began in another browser", hint="sign in again")
    if error or not code:
        raise UnauthenticatedError("the provider did not sign you in", hint="sign in again")
    person, grants = await provider.finish(Attempt(cookie), _callback(request), code, state)
    answer = RedirectResponse(local(next), _SEE_OTHER)

    def begin() -> None:
        access.sign_in(request, answer, service.accounts.people.sign_in(person, grants))

    await run_in_threadpool(begin)
    answer.delete_cookie(COOKIE, path=_PATH, httponly=True, samesite="lax")
    return answer


def _provider(service: Service) -> OpenId:
    if service.openid is None:
        raise NotFoundError("this server has no OpenID provider", hint="sign in with a token")
    return service.openid


def _callback(request: Request) -> str:
    return str(request.url_for("from_provider"))

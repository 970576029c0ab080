"""Sessions of browsers over HTTP: the cookie, and which requests of a browser are believed.

A browser sends its cookie with every request to this server, those that a page elsewhere makes it send included. So a
request that may change something needs more than the cookie::

    GET, HEAD, OPTIONS      the cookie
    others                  the cookie, and the value of form_token() as the field "csrf" of the form or as the header
                            X-CSRF-Token, which no page elsewhere can read
    others, no session      (such as signing in) not from a page of another site, by what the browser says of it

Requests with a bearer token need none of this: no browser adds one by itself.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import Request, Response

from maskreg.errors import NotAllowedError, UnauthenticatedError
from maskreg.service.auth.roles import Principal
from maskreg.service.auth.sessions import LIFETIME, fits
from maskreg.service.auth.sessions import form_token as token_of
from maskreg.service.context import service_of
from maskreg.settings.credentials import is_loopback

COOKIE = "maskreg_session"
"""The name of the cookie."""

FIELD = "csrf"
"""The field of every form that changes something."""

HEADER = "x-csrf-token"
"""The header that says the same where a script sends the request."""

_SAFE = ("GET", "HEAD", "OPTIONS")
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def authenticate(request: Request, token: str) -> Principal:
    """Who a token belongs to; an address that tries many wrong ones has to wait.

    Raises:
        UnauthenticatedError: the token is not valid.
        RateLimitedError: too many were not.
    """
    service, address = service_of(request), address_of(request)
    if service.limits is None:
        return service.accounts.authenticate(token)
    service.limits.failures.take(address, 0)
    try:
        return service.accounts.authenticate(token)
    except UnauthenticatedError:
        service.limits.failures.take(address)
        raise


def address_of(request: Request) -> str:
    """Where a request comes from; of a proxy on this machine, where that says."""
    return request.client.host if request.client else ""


def session_principal(request: Request) -> Principal | None:
    """Who signed in with the browser that sends a request; None without a session that is valid."""
    cookie = request.cookies.get(COOKIE, "")
    return service_of(request).accounts.sessions.principal(cookie) if cookie else None


def form_token(request: Request) -> str:
    """What a form of a page has to send back as its field ``csrf``; empty for whoever has no cookie."""
    cookie = request.cookies.get(COOKIE, "")
    return token_of(cookie) if cookie else ""


def begin(request: Request, response: Response, principal: Principal) -> None:
    """Sign somebody in: their browser gets a cookie with the answer.

    Args:
        request: in which they proved who they are.
        response: the answer to it.
        principal: who they are.
    """
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


def sign_in(request: Request, response: Response, token: str) -> Principal:
    """Sign in with a token that was typed into a form.

    Raises:
        UnauthenticatedError: the token is not valid.
    """
    principal = authenticate(request, token.strip())
    begin(request, response, principal)
    return principal


def sign_out(request: Request, response: Response) -> None:
    """End the session of a browser."""
    if cookie := request.cookies.get(COOKIE):
        service_of(request).accounts.sessions.end(cookie)
    response.delete_cookie(COOKIE, httponly=True, samesite="lax")


def shows_token(request: Request) -> bool:
    """Whether a request names its sender by itself; if not, the session of the browser does, and is not believed alone.

    An empty header names nobody.
    """
    return bool(request.headers.get("authorization", "").strip())


async def submitted(request: Request) -> str:
    """What a request says in proof that it comes from a page of this server; empty when it says nothing."""
    if request.method in _SAFE or COOKIE not in request.cookies:
        return ""
    if value := request.headers.get(HEADER):
        return value
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _FORMS:
        return ""
    field = (await request.form()).get(FIELD, "")
    return field if isinstance(field, str) else ""


def check_origin(request: Request, proof: str) -> None:
    """Refuse a request that a page elsewhere made a browser send.

    Args:
        request: the request.
        proof: what :func:`submitted` returned.

    Raises:
        NotAllowedError: it may change something, and does not come from a page of this server.
    """
    if request.method in _SAFE or shows_token(request):
        return
    if (cookie := request.cookies.get(COOKIE)) is not None:
        if not fits(cookie, proof):
            raise NotAllowedError(
                "the form does not belong to this session", hint="load the page again, and send it from there"
            )
        return
    origin = request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host", "")
    if foreign or request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise NotAllowedError("the request comes from a page of another site")

"""Signing in with an OpenID provider: to it, and back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse

from maskreg.errors import NotFoundError, UnauthenticatedError
from maskreg.service import sessions
from maskreg.service.access import PUBLIC
from maskreg.service.auth.openid import Attempt, OpenId
from maskreg.service.context import Served, Service
from maskreg.service.pages.signing_in import Next, local
from maskreg.settings.credentials import is_loopback

router = APIRouter(tags=["pages"], dependencies=[PUBLIC], default_response_class=RedirectResponse)

COOKIE = "maskreg_sign_in"
_PATH = "/sign-in/oidc"
_LIFETIME_S = 600

Text = Annotated[str, Query(max_length=4000)]


@router.get("/sign-in/oidc", status_code=303)
def to_provider(request: Request, service: Served, next: Next = "/") -> RedirectResponse:
    """Send the browser to the provider."""
    provider, attempt = _provider(service), Attempt()
    answer = RedirectResponse(provider.begin(attempt, _callback(request)), 303)
    secure = not is_loopback(request.url.hostname or "")
    # Lax, because the provider sends the browser back, and a stricter cookie would stay at home.
    answer.set_cookie(
        COOKIE,
        f"{attempt.cookie}.{local(next)}",
        max_age=_LIFETIME_S,
        path=_PATH,
        httponly=True,
        samesite="lax",
        secure=secure,
    )
    return answer


@router.get("/sign-in/oidc/callback", status_code=303)
def from_provider(
    request: Request, service: Served, code: Text = "", state: Text = "", error: Text = ""
) -> RedirectResponse:
    """Take the browser back, with who has signed in."""
    provider = _provider(service)
    cookie, _, next = request.cookies.get(COOKIE, "").partition(".")
    if not cookie:
        raise UnauthenticatedError("this sign-in took too long, or began in another browser", hint="sign in again")
    if error or not code:
        raise UnauthenticatedError("the provider did not sign you in", hint="sign in again")
    person, grants = provider.finish(Attempt(cookie), _callback(request), code, state)
    answer = RedirectResponse(local(next), 303)
    sessions.begin(request, answer, service.accounts.people.sign_in(person, grants))
    answer.delete_cookie(COOKIE, path=_PATH, httponly=True, samesite="lax")
    return answer


def _provider(service: Service) -> OpenId:
    if service.openid is None:
        raise NotFoundError("this server has no OpenID provider", hint="sign in with a token")
    return service.openid


def _callback(request: Request) -> str:
    return str(request.url_for("from_provider"))

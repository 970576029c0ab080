"""Signing in with a token, and out."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from maskreg.errors import UnauthenticatedError
from maskreg.service.access import PUBLIC
from maskreg.service.auth.roles import Principal
from maskreg.service.context import Served
from maskreg.service.pages.rendering import page
from maskreg.service.sessions import sign_in as begin
from maskreg.service.sessions import sign_out as end

router = APIRouter(tags=["pages"], default_response_class=HTMLResponse)

Nobody = Annotated[Principal, PUBLIC]

Next = Annotated[str, Query(max_length=4000)]


def local(address: str) -> str:
    """An address of this server; the first page where it is of another."""
    parts = urlsplit(address)
    # Browsers take a backslash for a slash, and a second slash for the beginning of a host.
    is_path = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_path and not parts.netloc and not parts.scheme else "/"


@router.get("/sign-in")
def form(request: Request, service: Served, principal: Nobody, next: Next = "/") -> HTMLResponse:
    """The form to sign in with."""
    return page(
        request, principal, "sign-in.html.j2", next=local(next), failed=False, people=service.openid is not None
    )


@router.post("/sign-in", response_class=HTMLResponse)
def sign_in(
    request: Request,
    service: Served,
    principal: Nobody,
    token: Annotated[str, Form(max_length=1000)],
    next: Annotated[str, Form(max_length=4000)] = "/",
) -> Response:
    """Sign in with a token: the session may what the token may, and ends with it."""
    answer = RedirectResponse(local(next), 303)
    try:
        begin(request, answer, token)
    except UnauthenticatedError:
        people = service.openid is not None
        return page(request, principal, "sign-in.html.j2", status=401, next=local(next), failed=True, people=people)
    return answer


@router.post("/sign-out", response_class=RedirectResponse, status_code=303)
def sign_out(request: Request, principal: Nobody) -> Response:
    """End the session."""
    answer = RedirectResponse("/", 303)
    end(request, answer)
    return answer

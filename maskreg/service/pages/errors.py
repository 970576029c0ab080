"""Errors as pages, for browsers; programs get the problem document."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from maskreg.errors import MaskregError, UnauthenticatedError
from maskreg.service.access import principal_of
from maskreg.service.auth.roles import Principal
from maskreg.service.pages.rendering import address_of
from maskreg.service.pages.rendering import page as render

_HEADINGS = {403: "Not allowed", 404: "Not found", 422: "That cannot be shown", 503: "Not now"}


def page(request: Request, status: int, title: str, code: str, hint: str) -> Response | None:
    """An error as a page; None for whoever did not ask for one. A visitor who may not is sent to sign in.

    Args:
        request: what failed.
        status: of HTTP.
        title: what is wrong.
        code: stable identifier.
        hint: the next step; empty when there is none.
    """
    if request.url.path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return None
    if code == UnauthenticatedError.code and request.method == "GET":
        return RedirectResponse(f"/sign-in?next={quote(address_of(request), safe='')}", 303)
    # What was sent was not to be shown.
    heading = _HEADINGS.get(status if status != 422 or request.method == "GET" else 0, "That did not work")
    sentence = f"{title[:1].upper()}{title[1:]}".rstrip(".") + "."
    try:
        principal = principal_of(request)
    except MaskregError:
        principal = Principal()
    return render(request, principal, "error.html.j2", status=status, heading=heading, sentence=sentence, hint=hint)

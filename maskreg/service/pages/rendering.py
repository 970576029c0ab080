"""A page from its template: one frame around all of them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse

from maskreg.ref import Ref
from maskreg.reports.templates import Definitions, environment
from maskreg.service.auth.roles import Principal
from maskreg.service.pages import drawing, static
from maskreg.service.pages.markdown import rendered
from maskreg.service.sessions import form_token
from maskreg.version import __version__

PACKAGE = "maskreg.service.pages"

NAVIGATION = (
    ("/", "Artifacts"),
    ("/compare", "Compare"),
    ("/activity", "Activity"),
    ("/jobs", "Jobs"),
    ("/glossary", "Glossary"),
)
"""What the head of every page leads to."""


def page(request: Request, principal: Principal, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page.

    Args:
        request: what it answers.
        principal: who reads it.
        template: a file of this room.
        status: of HTTP.
        values: what the template shows; whatever is not markup is escaped.
    """
    frame = {
        "principal": principal,
        "form_token": form_token(request),
        "path": request.url.path,
        "address": address_of(request),
        "navigation": NAVIGATION,
        "term": Definitions("/glossary"),
        "asset": static.address,
        "link": link,
        "draw": drawing,
        "markdown": rendered,
        "base": str(request.base_url).rstrip("/"),
        "remote": remote_name(request),
        "version": __version__,
    }
    text = environment(PACKAGE).get_template(template).render(frame | values)
    # What a page shows depends on who asks, and on what was pushed since.
    return HTMLResponse(text, status, {"Cache-Control": "private, no-cache", "Vary": "Cookie, Authorization"})


def address_of(request: Request) -> str:
    """The address of a request within this server."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def remote_name(request: Request) -> str:
    """What people may call this server among their remotes: the first part of its name."""
    label = (request.url.hostname or "").partition(".")[0]
    return label if label.isalpha() and label != "localhost" else "server"


def link(ref: Ref) -> str:
    """The address of an artifact's page."""
    pin = f"@{ref.digest}" if ref.digest else ""
    return quote(f"/p/{ref.project}/{ref.name}:{ref.tag}{pin}", safe="/:@")

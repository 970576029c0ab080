"""A page from its template: one frame around all of them.

Markdown from outside passes two fences, either of which suffices: the parser takes no HTML, and the sanitizer keeps
text, lists, tables, code and links to ``http``, ``https`` and ``mailto`` alone. Pictures are dropped: they would tell
others who reads a page.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import nh3
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from maskreg.digest import Digest
from maskreg.errors import MaskregError, NotFoundError, UnauthenticatedError
from maskreg.ref import README_CHARS, Ref
from maskreg.reports.modules import CIVIDIS, channels, ink_on
from maskreg.reports.templates import Definitions, environment
from maskreg.reports.theme import DARK, LIGHT
from maskreg.service.access import COOKIE, PUBLIC, principal_of
from maskreg.service.auth.roles import Principal
from maskreg.service.context import service_of
from maskreg.version import __version__

PACKAGE = "maskreg.service.pages"

NAVIGATION = (
    ("/", "Artifacts"),
    ("/runs", "Runs"),
    ("/compare", "Compare"),
    ("/jobs", "Jobs"),
    ("/glossary", "Glossary"),
)
"""What the head of every page leads to; jobs where the server runs some."""


def compile_templates() -> None:
    """Compile every template, which the first request for its page waits for otherwise."""
    for file in (*files(PACKAGE).iterdir(), *files("maskreg.reports").iterdir()):
        if file.name.endswith(".j2"):
            environment(PACKAGE).get_template(file.name)


def page(request: Request, principal: Principal, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page; ``values`` are escaped where they are not markup."""
    frame = {
        "principal": principal,
        "has_session": COOKIE in request.cookies,
        "path": request.url.path,
        "address": address_of(request),
        "navigation": [entry for entry in NAVIGATION if entry[0] != "/jobs" or service_of(request).jobs],
        "term": Definitions("/glossary"),
        "asset": asset,
        "link": link,
        "run_link": run_link,
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
    """What people can call this server among their remotes: the first part of its name."""
    label = (request.url.hostname or "").partition(".")[0]
    return label if label.isalpha() and label != "localhost" else "server"


def link(ref: Ref) -> str:
    """The address of an artifact's page."""
    pin = f"@{ref.digest}" if ref.digest else ""
    return quote(f"/p/{ref.project}/{ref.name}:{ref.tag}{pin}", safe="/:@")


def run_link(ref: Ref) -> str:
    """The address of a run's page."""
    return quote(f"/runs/{ref.project}/{ref.name}:{ref.tag}", safe="/:")


router = APIRouter(tags=["pages"], dependencies=[PUBLIC])

TYPES = dict.fromkeys(("site.js", "curves.js", "uPlot.iife.min.js"), "text/javascript")
TYPES |= {"site.css": "text/css", "uPlot.min.css": "text/css", "icon.svg": "image/svg+xml"}
"""Every file that pages load, and its type. uPlot 1.6.32 is there as its authors built it."""

_DIGITS = 12


@cache
def content(name: str) -> bytes:
    """The bytes of a file."""
    if name != "site.css":
        return (files(PACKAGE) / name).read_bytes()
    shades = [(color, ink_on(channels(color))) for color in CIVIDIS]
    return environment(PACKAGE).get_template(name).render(light=LIGHT, dark=DARK, shades=shades).encode()


def asset(name: str) -> str:
    """Where a browser finds a file."""
    return f"/static/{_version(name)}/{name}"


@cache
def _version(name: str) -> str:
    return Digest.of(content(name)).hex[:_DIGITS]


@router.get("/static/{version}/{name}", response_class=Response)
def static(version: str, name: str) -> Response:
    """A file of the pages. With another version's digits, the present file is sent, and not kept."""
    if name not in TYPES:
        raise NotFoundError(f"there is no file {name}")
    kept = "public, max-age=31536000, immutable" if version == _version(name) else "no-cache"
    return Response(content(name), media_type=TYPES[name], headers={"Cache-Control": kept})


_HEADINGS = {403: "Not allowed", 404: "Not found", 422: "That cannot be shown", 503: "Not now"}


def error_page(request: Request, status: int, title: str, code: str, hint: str) -> Response | None:
    """An error as a page; None for a client that reads no pages. A visitor is sent to sign in."""
    if request.url.path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return None
    if code == UnauthenticatedError.code and request.method == "GET":
        return RedirectResponse(f"/sign-in?next={quote(address_of(request), safe='')}", 303)
    # What was sent was not to be shown.
    heading = _HEADINGS.get(status if status != 422 or request.method == "GET" else 0, "That did not work")
    try:
        principal = principal_of(request)
    except MaskregError:
        principal = Principal()
    return page(request, principal, "error.html.j2", status=status, heading=heading, title=title, hint=hint)


_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "strong"),
    *("table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_HTML_CHARS = 1 << 20
_TOP = 3
"""Level of the largest heading: the page has the ones above."""


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


def _whole_address(_: str, attribute: str, value: str) -> str | None:
    # A relative link would lead to a page of this server, or with // to another one.
    return value if attribute != "href" or value.startswith(("http://", "https://", "mailto:")) else None


def rendered(text: str) -> Markup:
    """Markdown as markup, or as text where that is far longer; what is longer than a README can be is left out."""
    tokens = _parser().parse(text[:README_CHARS])
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + _TOP - 1)}"
    html = _parser().renderer.render(tokens, _parser().options, {})
    # A few characters can name a long address, or a row of empty cells, again and again.
    html = html if len(html) <= _HTML_CHARS else f"<pre>{escape(text[:README_CHARS])}</pre>"
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes={"*": set(), "a": {"href"}},
        attribute_filter=_whole_address,
        url_schemes={"http", "https", "mailto"},
        link_rel="nofollow noopener noreferrer",
    )
    # Sanitized above; tests try what people have slipped past sanitizers.
    return Markup(clean)

"""Style, script and icon of the pages. An address has the digest of its file in it, and browsers keep it for good."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response

from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.reports.shades import CIVIDIS, channels, ink_on
from maskreg.reports.templates import environment
from maskreg.reports.theme import DARK, LIGHT
from maskreg.service.access import PUBLIC

router = APIRouter(tags=["pages"], dependencies=[PUBLIC])

_PACKAGE = "maskreg.service.pages"

TYPES = {"site.css": "text/css", "site.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""Every file that pages load, and its type."""

_DIGITS = 12


@cache
def content(name: str) -> bytes:
    """The bytes of a file."""
    if name != "site.css":
        return (files(_PACKAGE) / name).read_bytes()
    shades = [(color, ink_on(channels(color))) for color in CIVIDIS]
    return environment(_PACKAGE).get_template(name).render(light=LIGHT, dark=DARK, shades=shades).encode()


def address(name: str) -> str:
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

"""Names that a server answers to: a page elsewhere whose own name leads here gets nothing (DNS rebinding)."""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from maskreg.errors import UsageError
from maskreg.service.problems import problem

ANY = "*"
"""Answers to every name."""

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\s:/?#@\[\]\\]+)(?::[0-9]{1,5})?", re.IGNORECASE)


def check_name(name: str) -> str:
    """A name that requests may be addressed to: of a host or an address, ``*.DOMAIN`` for all below it, ``*`` for any.

    Raises:
        UsageError: it is a URL, has a port, or is empty.
    """
    match = _HOST.fullmatch(name)
    if name != ANY and (match is None or match["name"] != name or "*" in name.removeprefix("*.")):
        raise UsageError(
            f"--allow-host {name!r} is not the name of a host",
            hint="write the name alone, as in --allow-host masks.lab.example",
        )
    return name


class KnownHosts:
    """Wraps an application, and refuses requests to other names."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        """Wrap an application.

        Args:
            app: the application.
            names: what it answers to, as :func:`check_name` takes them.
        """
        self.app = app
        self._names = frozenset(name.lower() for name in names)
        self._below = tuple(name[1:] for name in self._names if name.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or ANY in self._names:
            await self.app(scope, receive, send)
            return
        match = _HOST.fullmatch(Headers(scope=scope).get("host", ""))
        name = match["name"].lower() if match else ""
        if name in self._names or name.endswith(self._below):
            await self.app(scope, receive, send)
            return
        title = f"this server does not answer to the name {name}" if name else "the request names no host"
        hint = f"whoever runs it: maskreg serve --allow-host {name}" if name else "send the header Host"
        await problem(400, title, code=UsageError.code, hint=hint)(scope, receive, send)

"""What a server takes of its clients: how large, how fast, how many requests; and the headers of every answer.

Each account and address has a bucket that holds a number of requests and fills at a steady rate. A request takes one;
an empty bucket answers 429 and says when to come back. Each process of a server limits for itself, in memory.

Documents are read as suspiciously as the store's: FastAPI would take a key twice and keep the last one, so that a proxy
or a log can see another document than this server. A route says that it reads documents by its class::

    router = APIRouter(tags=["accounts"], route_class=DocumentRoute)
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from maskreg.document import parse
from maskreg.errors import LimitError, RateLimitedError, UsageError
from maskreg.service.problems import SlowError, problem

POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; img-src 'self'"
)
"""Scripts, styles and requests of this server alone, and none inline."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Protected:
    """Adds the headers to every answer of an application, errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, with_headers)


class KnownHosts:
    """Refuses requests that are addressed to another host: a page elsewhere whose own name leads here (DNS rebinding).

    Hosts are names, ``*.DOMAIN`` for all names below one, or ``*``.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app = app
        names = "|".join(re.escape(host.lower()).replace(r"\*", ".*") for host in hosts)
        self._known = re.compile(rf"(?:{names})(?::[0-9]*)?")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and not self._known.fullmatch(Headers(scope=scope).get("host", "").lower()):
            fault = "the request is addressed to a host name that is not this server's"
            hint = "use the server's own name; the operator can let it answer to others"
            await problem(400, fault, code=UsageError.code, hint=hint)(scope, receive, send)
            return
        await self.app(scope, receive, send)


PATIENCE_S = 30.0
"""How long a server waits for a client that is in the middle of a request or of an answer, in seconds."""

MAX_BYTES = 8 << 20
"""The largest body of a request, but for uploads of objects; a manifest in a document has room."""


_TOO_LARGE = f"the body of this request can have {MAX_BYTES} bytes at most"
_PROGRESS = 64 << 10


class Bounded:
    """Wraps an application, and refuses a body that is too large (413) or stops coming (408).

    What is sent without a length is counted as it comes; uploads have limits of their own.
    """

    def __init__(self, app: ASGIApp, uploads: str) -> None:
        self.app, self._uploads = app, uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_upload = scope["method"] == "PUT" and scope["path"].startswith(self._uploads)
        stated = Headers(scope=scope).get("content-length", "0")
        # A number of so many digits is too large as well.
        is_small = len(stated) <= 18 and stated.isascii() and stated.isdigit() and int(stated) <= MAX_BYTES
        if not is_upload and not is_small:
            await problem(413, _TOO_LARGE, code=LimitError.code)(scope, receive, send)
            return
        clock = asyncio.get_running_loop().time
        left, size, since, whole = PATIENCE_S, 0, 0, False

        async def bounded() -> Message:
            nonlocal left, size, since, whole
            if whole:
                # Later calls wait for the end of the connection.
                return await receive()
            began = clock()
            try:
                message = await asyncio.wait_for(receive(), left)
            except TimeoutError as error:
                raise SlowError(
                    f"the body stopped coming: less than {_PROGRESS >> 10} KiB in {PATIENCE_S:g} seconds",
                    hint="send it again",
                ) from error
            whole = not message.get("more_body", False)
            size += len(message.get("body", b""))
            if size > MAX_BYTES and not is_upload:
                raise LimitError(_TOO_LARGE)
            # Only time in which the server waited for the client counts.
            left -= clock() - began
            if size - since >= _PROGRESS:
                left, since = PATIENCE_S, size
            return message

        await self.app(scope, bounded, send)


STOPPING = "maskreg.stopping"
"""In the scope of a request that is still worked on when the server is to stop: one that waits must not go on."""


class Punctual(H11Protocol):
    """A connection of the server, which is closed when headers do not come to an end, or an answer is not read."""

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self._before: object = None
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection."""
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        super().data_received(data)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        super().connection_lost(exc)
        for timer in (self._late, self._unread):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """Wait until the client has read what is to be sent."""
        super().pause_writing()
        self._expect_reading(math.inf)

    def resume_writing(self) -> None:
        """Send more."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def shutdown(self) -> None:
        """Close the connection, once the request that is worked on is answered."""
        if self.cycle is not None:
            self.cycle.scope[STOPPING] = True  # type: ignore[literal-required]  # an application's own key
        super().shutdown()

    def _expect_headers(self) -> None:
        # A cycle is a request whose headers are there, with its answer.
        if self._late is not None and self.cycle is not self._before:
            self._late.cancel()
            self._late = None
        if self._late is None and (self.cycle is None or self.cycle.response_complete):
            self._before = self.cycle
            self._late = self.loop.call_later(PATIENCE_S, self.transport.close)

    def _expect_reading(self, before: float) -> None:
        unread = self.transport.get_write_buffer_size()
        if before - unread >= _PROGRESS:
            self._unread = self.loop.call_later(PATIENCE_S, self._expect_reading, unread)
        else:
            self.transport.abort()  # to close it would wait for the client


class DocumentRequest(Request):
    """A request whose document has one meaning."""

    async def json(self) -> Any:
        """The document."""
        return parse(await self.body(), "the body", max_bytes=MAX_BYTES)


class DocumentRoute(APIRoute):
    """A route that reads documents."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """What answers a request."""
        answer = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await answer(DocumentRequest(request.scope, request.receive))

        return strictly


_MOST_BUCKETS = 65_536


class Throttle:
    """Buckets by key, the latest 65,536. Safe to use from many threads."""

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = per_second, burst, clock
        self._lock = threading.Lock()
        # What each bucket held, and when.
        self._buckets: LRUCache[str, tuple[float, float]] = LRUCache(_MOST_BUCKETS)

    def take(self, key: str, count: int = 1) -> None:
        """Take from a bucket; 0 only looks whether anything is left."""
        now, needed = self._clock(), max(count, 1)
        with self._lock:
            held, at = self._buckets.get(key, (float(self._burst), now))
            held = min(self._burst, held + (now - at) * self._rate)
            self._buckets[key] = (held - count if held >= needed else held, now)
        if held < needed:
            raise RateLimitedError(int((needed - held) / self._rate) + 1)


@dataclass(frozen=True)
class RateLimits:
    """The limits of a process."""

    accounts: Throttle
    addresses: Throttle
    failures: Throttle

    @classmethod
    def of(cls, per_second: float) -> RateLimits:
        """The limits that follow from the requests a second of an account.

        An address without an account gets a tenth, and one wrong token a second after the first twenty.
        """
        return cls(
            Throttle(per_second, int(10 * per_second) or 1),
            Throttle(per_second / 10, int(per_second) or 1),
            Throttle(1.0, 20),
        )

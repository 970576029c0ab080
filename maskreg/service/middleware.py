"""What a server takes of its clients: how large, how fast, how many requests; and the headers of every answer.

Each account and address has a bucket that holds a number of requests and fills at a steady rate. A request takes one;
an empty bucket answers 429 and says when to come back. Each process of a server limits for itself, in memory.

Documents are read as suspiciously as the store's: FastAPI would take a key twice and keep the last one, so that a proxy
or a log may see another document than this server. A route says that it reads documents by its class::

    router = APIRouter(tags=["accounts"], route_class=DocumentRoute)
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import h11
from cachetools import LRUCache
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from maskreg.document import parse
from maskreg.errors import LimitError, RateLimitedError, UsageError
from maskreg.service.problems import MEDIA_TYPE, SlowError, problem

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


MAX_BYTES = 8 << 20
"""The largest body of a request, but for uploads of objects; a manifest in a document has room."""


class Bounded:
    """Wraps an application, and refuses larger bodies; what is sent without a length is counted as it comes."""

    def __init__(self, app: ASGIApp, uploads: str) -> None:
        self.app = app
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or (scope["method"] == "PUT" and scope["path"].startswith(self._uploads)):
            await self.app(scope, receive, send)
            return
        stated = Headers(scope=scope).get("content-length", "0")
        # A number of so many digits is too large as well.
        if len(stated) > 18 or not stated.isascii() or not stated.isdigit() or int(stated) > MAX_BYTES:
            await problem(413, _TITLE, code=LimitError.code)(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BYTES:
                raise LimitError(_TITLE)
            return message

        await self.app(scope, counted, send)


_TITLE = f"the body of this request can have {MAX_BYTES} bytes at most"


_PROGRESS = 64 << 10


class Paced:
    """Wraps an application, and refuses a body that stops coming (408)."""

    def __init__(self, app: ASGIApp, patience_s: float) -> None:
        self.app = app
        self._patience_s = patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        clock = asyncio.get_running_loop().time
        left, size, whole = self._patience_s, 0, False

        async def paced() -> Message:
            nonlocal left, size, whole
            if whole:
                # Later calls wait for the end of the connection.
                return await receive()
            began = clock()
            try:
                message = await asyncio.wait_for(receive(), left)
            except TimeoutError as error:
                raise SlowError(
                    f"the body stopped coming: less than {_PROGRESS >> 10} KiB in {self._patience_s:g} seconds",
                    hint="send it again; the operator can let the server wait longer",
                ) from error
            whole = not message.get("more_body", False)
            # Only time in which the server waited for the client counts.
            left, size = left - (clock() - began), size + len(message.get("body", b""))
            if size >= _PROGRESS:
                left, size = self._patience_s, 0
            return message

        await self.app(scope, paced, send)


class Punctual(H11Protocol):
    """A connection of the server, which is closed when headers do not come to an end.

    Bytes that are not HTTP are answered with a problem document, as every other error.
    """

    def __init__(self, *args: object, patience_s: float, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self._patience_s = patience_s
        self._before: object = None
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection."""
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        super().data_received(data)
        self._expect_headers()

    def _expect_headers(self) -> None:
        # A cycle is a request whose headers are there, with its answer.
        if self._late is not None and self.cycle is not self._before:
            self._late.cancel()
            self._late = None
        if self._late is None and (self.cycle is None or self.cycle.response_complete):
            self._before = self.cycle
            self._late = self.loop.call_later(self._patience_s, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP."""
        body = bytes(problem(400, msg.rstrip("."), code=UsageError.code).body)
        headers = [
            ("content-type", MEDIA_TYPE),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


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
    """Buckets by key, the latest 65,536. Safe to use from many threads.

    Args:
        per_second: how fast a bucket fills.
        burst: how many requests a full one holds.
        clock: in seconds; for tests.
    """

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

"""Headers of every answer: what a browser must not do with it."""

from __future__ import annotations

import asyncio

import h11
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from maskreg.errors import LimitError, UsageError
from maskreg.service.faults import SlowError
from maskreg.service.problems import MEDIA_TYPE, problem

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

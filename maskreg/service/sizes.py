"""How large a request may be. Documents and forms are read into memory, before anybody knows who sent them."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskreg.errors import LimitError
from maskreg.service.problems import problem

MAX_BYTES = 8 << 20
"""The largest body of a request, but for uploads of objects; a manifest in a document has room."""


class Bounded:
    """Wraps an application, and refuses larger bodies; what is sent without a length is counted as it comes."""

    def __init__(self, app: ASGIApp, uploads: str) -> None:
        """Wrap an application.

        Args:
            app: the application.
            uploads: what the paths begin with whose routes limit what is PUT there themselves.
        """
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


_TITLE = f"the body of this request may have {MAX_BYTES} bytes at most"

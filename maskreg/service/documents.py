"""Documents that are sent here: read as suspiciously as the store's, by every route that takes one.

FastAPI would take a key twice and keep the last one, so that a proxy or a log may see another document than this
server. A route says that it reads documents by its class::

    router = APIRouter(tags=["accounts"], route_class=DocumentRoute)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from maskreg.document import parse
from maskreg.service.middleware import MAX_BYTES


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

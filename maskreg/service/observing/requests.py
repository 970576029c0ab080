"""Every request gets an id, a line in the log and a place in the metrics.

The id is that of the client or proxy, from ``X-Request-Id``, or a new one. It is in the answer, in problems and in
every line that is logged while the request is worked on, so that one search in the logs of all servers tells its story.

Of the address only the path is logged: a query may hold what somebody searched for, or a code that signs them in.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from contextvars import ContextVar
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskreg.service.observing import metrics

HEADER = "X-Request-Id"

OTHER = "other"
"""The route of requests that match none: what anybody types must not become a time series."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_log = logging.getLogger("maskreg.service.requests")

# Set once in the task of a request, and inherited by the threads that work on it.
_current: ContextVar[str] = ContextVar("request_id", default="")


def request_id() -> str:
    """The id of the request that is worked on; empty outside of one."""
    return _current.get()


class Observed:
    """Wraps an application; has to be the outermost of its middleware."""

    def __init__(self, app: ASGIApp, prefixes: Sequence[str] = ()) -> None:
        """Wrap an application.

        Args:
            app: the application.
            prefixes: what paths of its routers begin with; routes themselves do not say so.
        """
        self.app = app
        self._prefixes = prefixes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        identity = given if _ID.fullmatch(given) else uuid4().hex
        _current.set(identity)
        status, size = 500, 0

        async def observed(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = identity
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        started = time.perf_counter()
        with metrics.IN_FLIGHT.track_inprogress():
            try:
                await self.app(scope, receive, observed)
            finally:
                _tell(scope, self._route(scope), status, time.perf_counter() - started, size)

    def _route(self, scope: Scope) -> str:
        # The router has put the route into the scope by now.
        route: str = getattr(scope.get("route"), "path", "")
        prefix = next((text for text in self._prefixes if text and scope["path"].startswith(f"{text}/")), "")
        return (route if route.startswith(prefix) else prefix + route) if route else OTHER


def _tell(scope: Scope, route: str, status: int, seconds: float, size: int) -> None:
    method = scope["method"]
    metrics.REQUESTS.labels(method, route, str(status)).inc()
    metrics.SECONDS.labels(method, route).observe(seconds)
    metrics.BYTES.labels(method, route).inc(size)
    client = scope.get("client")
    fields = {
        "method": method,
        "route": route,
        "path": scope["path"],
        "status": status,
        "seconds": round(seconds, 6),
        "bytes": size,
        "client": client[0] if client else "",
        "by": scope.get("state", {}).get("by", ""),
    }
    _log.info("%s %s %s", method, route, status, extra={"fields": fields})

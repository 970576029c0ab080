"""A proxy in front of an S3 service that fails as networks, gateways and caches do; what it does follows from a seed.

It passes requests on with all their headers, so that the service checks the client's own signature. Faults::

    reset         the connection breaks before the request is passed on
    stall         no answer until the client gives up; the request is not passed on
    500 503 409   an answer that refuses, and nothing is done
    lost          the request is passed on and has its effect, and the connection breaks before the answer
    500 after     the same, with an answer that says it failed
    truncated     the body of an answer breaks off half way
    short         Content-Length is smaller than the body, which is cut to it: nothing tells that bytes are missing
    long          Content-Length is larger than the body
    stale         a listing as it was some requests ago
    empty         a listing without anything in it
"""

from __future__ import annotations

import http.client
import random
import re
import socket
import struct
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

STALL_SECONDS = 0.6
"""Longer than the clients of these attacks wait for an answer."""

BEFORE = ("reset", "stall", "500", "503")
AFTER = ("lost", "500 after")
BODY = ("truncated", "short", "long")
LISTING = ("stale", "empty")
_AT_ONCE = 5
"""Requests that the same fault hits when it lasts: more than a client tries."""


@dataclass(frozen=True)
class Reply:
    """An answer of the service."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Faults:
    """Which faults come when.

    Attributes:
        share: of the requests that a fault hits; 0 passes everything on.
        served: how often each fault came since the last :meth:`begin`.
        total: how often each fault came.
    """

    share: float = 0.0
    served: Counter[str] = field(default_factory=Counter)
    total: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    _rng: random.Random = field(default_factory=random.Random)
    _lasting: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _earlier: dict[str, list[Reply]] = field(default_factory=lambda: defaultdict(list))

    def begin(self, seed: str, share: float) -> None:
        """Draw from a new seed, and forget everything that was served before."""
        with self._lock:
            self._rng = random.Random(seed)
            self.share = share
            self.served.clear()
            self._lasting.clear()
            self._earlier.clear()

    def draw(self, method: str, listing: bool, conditional: bool) -> str:
        """The fault of the next request; empty for none."""
        with self._lock:
            self.requests += 1
            if not self.share:
                return ""
            if self._lasting:
                return self._count(self._lasting.pop())
            if self._rng.random() >= self.share:
                return ""
            kinds = [*BEFORE, *(AFTER if method in ("PUT", "DELETE") else BODY)]
            kinds += [*LISTING, *LISTING, *LISTING] if listing else []
            kinds += ["409", "409"] if conditional else []
            kind = self._rng.choice(kinds)
            if kind in BEFORE and self._rng.random() < 0.15:
                self._lasting = [kind] * _AT_ONCE
            return self._count(kind)

    def listed(self, path: str, reply: Reply, kind: str) -> Reply:
        """A listing as it is to be served, remembered for later."""
        with self._lock:
            earlier = self._earlier[path]
            stale = self._rng.choice(earlier) if earlier else reply
            earlier.append(reply)
        return {"stale": stale, "empty": _emptied(reply)}.get(kind, reply)

    def _count(self, kind: str) -> str:
        self.served[kind] += 1
        self.total[kind] += 1
        return kind


@contextmanager
def fault_proxy(upstream: str, faults: Faults) -> Iterator[str]:
    """Run a proxy in front of ``upstream``; gives its URL."""
    host = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            listing = self.command == "GET" and "list-type=2" in self.path
            kind = faults.draw(self.command, listing, "If-None-Match" in self.headers)
            if kind == "reset":
                self._break()
            elif kind == "stall":
                threading.Event().wait(STALL_SECONDS)
                self._break()
            elif kind in ("500", "503", "409"):
                self._send(_error(int(kind)))
            else:
                self._pass_on(body, kind, listing)

        def _pass_on(self, body: bytes, kind: str, listing: bool) -> None:
            reply = self._forward(body)
            if listing and reply.status == 200:
                reply = faults.listed(self.path, reply, kind)
            if kind == "lost":
                self._break()
            elif kind == "500 after":
                self._send(_error(500))
            else:
                self._send(reply, kind if kind in BODY and self.command == "GET" else "")

        def _forward(self, body: bytes) -> Reply:
            with closing(http.client.HTTPConnection(host, timeout=60)) as connection:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "expect"):
                        connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                return Reply(answer.status, dict(answer.getheaders()), answer.read())

        def _send(self, reply: Reply, kind: str = "") -> None:
            body = reply.body
            lengths = {"short": len(body) // 2, "long": len(body) + 7}
            self.send_response_only(reply.status)
            for name, value in reply.headers.items():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            if self.command == "HEAD":
                self.send_header("Content-Length", reply.headers.get("Content-Length", "0"))
                self.end_headers()
                return
            self.send_header("Content-Length", str(lengths.get(kind, len(body))))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if kind in ("truncated", "short") else body)
            self.close_connection = bool(kind)

        def _break(self) -> None:
            # No time to linger: the client sees a reset, not an end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

        def handle(self) -> None:
            try:
                super().handle()
            except (ConnectionError, ValueError):
                # The client has gone, or the connection was broken on purpose.
                self.close_connection = True

        def finish(self) -> None:
            try:
                super().finish()
            except (ConnectionError, ValueError):
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _error(status: int) -> Reply:
    code = {500: "InternalError", 503: "SlowDown", 409: "ConditionalRequestConflict"}[status]
    body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>m</Message></Error>"
    return Reply(status, {"Content-Type": "application/xml"}, body.encode())


def _emptied(reply: Reply) -> Reply:
    body = re.sub(rb"<Contents>.*</Contents>", b"", reply.body, flags=re.DOTALL)
    body = re.sub(rb"<KeyCount>\d+</KeyCount>", b"<KeyCount>0</KeyCount>", body)
    body = re.sub(rb"<IsTruncated>true</IsTruncated>", b"<IsTruncated>false</IsTruncated>", body)
    return Reply(reply.status, reply.headers, body)

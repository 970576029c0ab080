"""Faults between the S3 client and a real service, as networks, gateways and caches make them; they follow from a seed.

A request that is passed on reaches the service as the client signed it, and its answer is spoiled afterwards::

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

import io
import random
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from botocore.awsrequest import AWSHTTPConnectionPool
from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError, ReadTimeoutError

BEFORE = ("reset", "stall", "500", "503")
AFTER = ("lost", "500 after")
BODY = ("truncated", "short", "long")
LISTING = ("stale", "empty")
_AT_ONCE = 5
"""Requests that the same fault hits when it lasts: more than a client tries."""

_CODES = {500: "InternalError", 503: "SlowDown", 409: "ConditionalRequestConflict"}


@dataclass
class Faults:
    """Which faults come when.

    Attributes:
        share: of the requests that a fault hits; 0 passes everything on.
        served: how often each fault came since the last :meth:`begin`.
    """

    share: float = 0.0
    served: Counter[str] = field(default_factory=Counter)
    _rng: random.Random = field(default_factory=random.Random)
    _lasting: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _earlier: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))

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

    def listed(self, path: str, body: bytes, kind: str) -> bytes:
        """A listing as it is to be served, remembered for later."""
        with self._lock:
            earlier = self._earlier[path]
            stale = self._rng.choice(earlier) if earlier else body
            earlier.append(body)
        return {"stale": stale, "empty": _emptied(body)}.get(kind, body)

    def _count(self, kind: str) -> str:
        self.served[kind] += 1
        return kind


@contextmanager
def failing(faults: Faults) -> Iterator[None]:
    """Have the requests of all S3 clients of this process meet these faults."""
    pass_on = AWSHTTPConnectionPool.urlopen

    def urlopen(pool: Any, method: str, url: str, *, headers: Mapping[str, str], **options: Any) -> Any:
        listing = method == "GET" and "list-type=2" in url
        kind = faults.draw(method, listing, "If-None-Match" in headers)
        if kind == "reset":
            raise ProtocolError("Connection aborted.", ConnectionResetError())
        if kind == "stall":
            raise ReadTimeoutError(pool, url, "Read timed out.")
        if kind in ("500", "503", "409"):
            return _refusal(int(kind))
        answer = pass_on(pool, method, url, headers=headers, **options)
        body = answer.read(decode_content=False)
        if kind == "lost":
            raise ProtocolError("Connection aborted.", ConnectionResetError())
        if kind == "500 after":
            return _refusal(500)
        if listing and answer.status == 200:
            body = faults.listed(url, body, kind)
        if method == "HEAD":
            return _reply(answer.status, answer.headers, body, answer.headers.get("Content-Length", "0"))
        length = {"short": len(body) // 2, "long": len(body) + 7}.get(kind, len(body))
        sent = body[: len(body) // 2] if kind in ("truncated", "short") else body
        return _reply(answer.status, answer.headers, sent, str(length))

    with patch.object(AWSHTTPConnectionPool, "urlopen", urlopen):
        yield


def _reply(status: int, headers: Mapping[str, str], body: bytes, length: str) -> HTTPResponse:
    kept = {name: value for name, value in headers.items() if name.lower() != "content-length"}
    kept["Content-Length"] = length
    return HTTPResponse(
        io.BytesIO(body), kept, status, preload_content=False, decode_content=False, enforce_content_length=False
    )


def _refusal(status: int) -> HTTPResponse:
    body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{_CODES[status]}</Code><Message>m</Message></Error>"
    return _reply(status, {"Content-Type": "application/xml"}, body.encode(), str(len(body)))


def _emptied(body: bytes) -> bytes:
    body = re.sub(rb"<Contents>.*</Contents>", b"", body, flags=re.DOTALL)
    body = re.sub(rb"<KeyCount>\d+</KeyCount>", b"<KeyCount>0</KeyCount>", body)
    return re.sub(rb"<IsTruncated>true</IsTruncated>", b"<IsTruncated>false</IsTruncated>", body)

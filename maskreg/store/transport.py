"""Requests over HTTP, one at a time: open connections, certificates, and the proxies of the environment.

An answer of known length is read into one buffer. A client that hands it out in pieces needs six times the CPU time.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import truststore
import urllib3
from urllib3 import exceptions
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import make_headers, parse_url

from maskreg.errors import LimitError
from maskreg.store.message import DEFAULT_ANSWER_BYTES, Answer, LostError, Message

_CONNECTIONS = 32
_PIECE_BYTES = 256 << 10
_WRITE_SECONDS = 60.0

_UNSENT = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError)
_LOST = (*(exceptions.TimeoutError, exceptions.ProtocolError, exceptions.SSLError, exceptions.ProxyError), *_UNSENT)


class Transport:
    """Connections to any number of hosts, kept open. Safe to use from many threads."""

    def __init__(self, ca_bundle: str, connect_seconds: float, read_seconds: float) -> None:
        self._ca_bundle = ca_bundle
        self._timeout = urllib3.Timeout(connect=connect_seconds, read=read_seconds)
        self._opening = threading.Lock()
        self._managers: dict[str, urllib3.PoolManager] = {}

    def send(self, message: Message, url: str, headers: Mapping[str, str]) -> Answer:
        """Send a request and read the answer; follows no redirect, and keeps no cookie."""
        body, stated = None, dict(headers)
        if message.method in ("PUT", "POST", "PATCH"):
            body = _pieces(message.content)
            stated = {k: v for k, v in stated.items() if k.lower() != "content-length"}
            stated["Content-Length"] = str(len(message.content))
        if message.query:
            url = f"{url}?{urlencode(message.query, errors='replace')}"
        try:
            response = self._manager(urlsplit(url)).urlopen(
                *(message.method, url),
                body=body,
                headers=stated,
                timeout=self._timeout,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                data = _body(response, message)
            finally:
                # Of an answer that was not read to its end, the connection cannot be used again.
                response.close()
                response.release_conn()
        except _LOST as error:
            raise LostError(type(error).__name__, unsent=isinstance(error, _UNSENT)) from error
        except exceptions.HTTPError as error:
            raise ValueError(type(error).__name__) from error
        return Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, data)

    def close(self) -> None:
        """Close the connections that no request uses."""
        with self._opening:
            for manager in self._managers.values():
                manager.clear()

    def _manager(self, parts: SplitResult) -> urllib3.PoolManager:
        proxy = _proxy_of(parts)
        with self._opening:
            if proxy not in self._managers:
                self._managers[proxy] = self._open(proxy)
            return self._managers[proxy]

    def _open(self, proxy: str) -> urllib3.PoolManager:
        environment = tuple(os.environ.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        context = _trusting(self._ca_bundle, environment)
        if proxy:
            credentials = parse_url(proxy).auth
            headers = make_headers(proxy_basic_auth=unquote(credentials)) if credentials else {}
            manager: urllib3.PoolManager = urllib3.ProxyManager(
                *(proxy,), proxy_headers=headers, maxsize=_CONNECTIONS, block=True, ssl_context=context
            )
        else:
            manager = urllib3.PoolManager(maxsize=_CONNECTIONS, block=True, ssl_context=context)
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
        return manager


class _Connection(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        # Otherwise a piece has to leave in the time that is meant for connecting.
        self.sock.settimeout(_WRITE_SECONDS)


class _SecureConnection(_Connection, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def _pieces(content: bytes) -> Iterator[memoryview]:
    # The time limit counts for each piece, so that it does not depend on the size of the whole.
    view = memoryview(content)
    return (view[start : start + _PIECE_BYTES] for start in range(0, len(view), _PIECE_BYTES))


def _body(response: urllib3.BaseHTTPResponse, message: Message) -> bytes:
    stated = response.headers.get("content-length", "")
    size = int(stated) if stated.isascii() and stated.isdigit() and message.method != "HEAD" else None
    limit = message.max_bytes if response.status < 300 else DEFAULT_ANSWER_BYTES
    if size is not None and size > limit:
        raise LimitError(f"{message.path.lstrip('/')}: {size} bytes; the limit is {limit}")
    data = response.read(limit + 1)
    if len(data) > limit:
        raise LimitError(f"{message.path.lstrip('/')}: more than {limit} bytes; that is the limit")
    if size is not None and len(data) < size:
        raise LostError("IncompleteRead")
    return data


def _proxy_of(parts: SplitResult) -> str:
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all", "")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


@lru_cache(maxsize=8)
def _trusting(ca_bundle: str, environment: tuple[str, ...]) -> ssl.SSLContext:
    """Whose certificates are believed; reading them takes longer than a request, so connections share it."""
    if not ca_bundle:
        # What the variables name, OpenSSL reads itself.
        return ssl.create_default_context() if any(environment) else truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    path = Path(ca_bundle)
    return ssl.create_default_context(capath=path) if path.is_dir() else ssl.create_default_context(cafile=path)

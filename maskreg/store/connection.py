"""Requests to a service: who sends them, what is tried again, and what can follow a redirect.

::

    send with the token                     it goes to the service's own address and to no other
      another host is named (3xx)           an object is fetched from there without the token; all else is refused
      429, 502, 503, 504, no answer         wait (Retry-After, else longer each time) and send again
      any other refusal                     the error that the service names, with its hint

A request that might have been carried out is sent again only when carrying it out twice does no harm.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urljoin, urlsplit

from maskreg.errors import ConfigError, MaskregError, UnavailableError, translating
from maskreg.settings import StoreOptions
from maskreg.settings.credentials import is_loopback, service_url, token_for
from maskreg.store.message import DEFAULT_ANSWER_BYTES, Answer, LostError, Message, document, refused, understanding
from maskreg.version import __version__

if TYPE_CHECKING:
    from maskreg.store.transport import Transport

API = "/api/v1"
"""Where the interface of a service begins, below its URL."""

PAUSE_S = 0.1
"""Before a request is sent again for the first time."""
_LONGEST_PAUSE_S = 20.0
_PASSING = {429, 502, 503, 504}
_MOVED = {301, 302, 303, 307, 308}
_REDIRECTS = 5
_ATTEMPTS_ELSEWHERE = 2


class ElsewhereError(UnavailableError):
    """Another host, to which a service redirected, does not answer or must not be asked."""


class Connection:
    """One service. Proxies and certificates come from the environment; safe to use from many threads."""

    def __init__(
        self,
        url: str,
        options: StoreOptions = StoreOptions(),  # noqa: B008 - a frozen value
        *,
        connect_seconds: float = 5,
        read_seconds: float = 60,
        attempts: int = 4,
        token: str | None = None,
    ) -> None:
        self.url = service_url(url)
        if options.ca_bundle and not Path(options.ca_bundle).exists():
            raise ConfigError(f"the CA bundle {options.ca_bundle} does not exist")
        self.arguments = (self.url, options, connect_seconds, read_seconds, attempts)
        self._own = urlsplit(self.url + "/")
        self._attempts = attempts
        self._connecting = threading.Lock()
        self._connected: Transport | None = None
        self._token = token

    def ask(self, message: Message) -> Answer:
        """Send a request, again if need be."""
        pause, begun, connect_seconds = 0.0, time.monotonic(), self.arguments[2]
        problem: MaskregError = UnavailableError(f"{self.url}: not asked")
        for attempt in range(self._attempts):
            time.sleep(pause)
            pause = random.uniform(0.5, 1) * PAUSE_S * 4**attempt
            try:
                answer = self._through_redirects(message)
            except LostError as lost:
                problem = UnavailableError(
                    f"{self.url}: {message.method.lower()}: the service does not answer ({lost})",
                    hint="check the URL and the network; offline: MASKREG_OFFLINE=1 uses what is on this machine",
                )
                # A host that is gone answers nothing, however often it is asked; one that restarts refuses at once.
                is_gone = lost.unsent and time.monotonic() - begun >= connect_seconds
                if is_gone or not (message.repeatable or lost.unsent):
                    raise problem from lost
                continue
            if answer.status < 400 or answer.status in message.accepted:
                return answer
            problem = refused(self.url, answer.status, answer.headers, answer.data)
            if answer.status not in _PASSING:
                raise problem
            text = answer.headers.get("retry-after", "")
            pause = max(pause, float(text) if text.isascii() and text.isdigit() else 0.0)
            if pause > _LONGEST_PAUSE_S:
                break
        raise problem

    def document(self, message: Message) -> dict[str, Any]:
        """The document that a request is answered with."""
        return document(self.url, self.ask(message).data)

    def call(
        self, method: str, path: str, body: object = None, *, max_bytes: int = DEFAULT_ANSWER_BYTES
    ) -> dict[str, Any]:
        """The document that a request with a document, or with none, is answered with; only ``GET`` is sent again."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if content else {}
        repeatable = method == "GET"
        return self.document(
            Message(method, path, headers=headers, content=content, max_bytes=max_bytes, repeatable=repeatable)
        )

    def send_elsewhere(self, url: str, headers: Mapping[str, str], data: bytes) -> None:
        """Put bytes where a signed link of the service leads, without the token."""
        with understanding(self.url):
            self._check_secure(_well_formed(url))
        for attempt in range(_ATTEMPTS_ELSEWHERE):
            time.sleep(random.uniform(0.5, 1) * PAUSE_S * 4**attempt if attempt else 0)
            try:
                answer = self._send(Message("PUT", "", headers=headers, content=data), url, own=False)
            except LostError as lost:
                reason = str(lost)
                continue
            if answer.status < 300:
                return
            reason = f"status {answer.status}"
            if answer.status not in {*_PASSING, 500}:
                break
        raise ElsewhereError(f"{urlsplit(url).hostname} does not take the upload ({reason})")

    def fetch_elsewhere(self, url: str, key: str, max_bytes: int) -> bytes:
        """The bytes behind a signed link of the service, asked for without the token."""
        with understanding(self.url):
            self._check_secure(_well_formed(url))
        answer = self._fetch(Message("GET", key, max_bytes=max_bytes), url)
        if answer.status != 200:
            raise ElsewhereError(f"{urlsplit(url).hostname} answered {answer.status}")
        return answer.data

    def close(self) -> None:
        """Close the connections; it must not be used afterwards."""
        if self._connected is not None:
            self._connected.close()

    def _through_redirects(self, message: Message) -> Answer:
        url = f"{self.url}{API}{message.path}"
        for _ in range(_REDIRECTS):
            own = self._is_own(url)
            answer = self._send(message, url) if own else self._fetch(message, url)
            if answer.status not in _MOVED:
                return answer
            with understanding(self.url):
                named = _well_formed(urljoin(url, answer.headers.get("location", "")))
            url = self._target(message, named)
        raise ConfigError(f"{self.url} redirects in a circle", hint="check the URL", known_remotes=True)

    def _fetch(self, message: Message, url: str) -> Answer:
        try:
            answer = self._send(replace(message, query={}, headers={}), url, own=False)
        except LostError as lost:
            raise ElsewhereError(f"{urlsplit(url).hostname} does not answer ({lost})") from lost
        if answer.status >= 400:
            # Such as a link that has expired: what that host says is none of the service's refusals.
            raise ElsewhereError(f"{urlsplit(url).hostname} answered {answer.status}")
        return answer

    def _target(self, message: Message, url: str) -> str:
        if self._is_own(url):
            return url
        parts = urlsplit(url)
        if not (message.elsewhere and message.method == "GET"):
            raise ConfigError(
                f"{self.url} redirects to {parts.scheme}://{parts.netloc}, which gets neither the token nor data",
                hint="if that is the service, add it under its own URL",
                new_remote="NAME",
                new_url="URL",
            )
        self._check_secure(url)
        return url

    def _check_secure(self, url: str) -> None:
        parts = urlsplit(url)
        host = parts.hostname or "nowhere"
        is_here = parts.scheme == "http" and self._own.scheme == "http" and is_loopback(host)
        if parts.scheme != "https" and not is_here:
            raise ElsewhereError(f"{self.url} redirects to {parts.scheme}://{host}, which is not encrypted")

    def _is_own(self, url: str) -> bool:
        parts = urlsplit(url)
        return _origin(parts) == _origin(self._own) and parts.path.startswith(self._own.path)

    def _send(self, message: Message, url: str, *, own: bool = True) -> Answer:
        headers = {"Accept-Encoding": "identity", "User-Agent": f"maskreg/{__version__}", **message.headers}
        if own and (token := self._bearer()):
            headers["Authorization"] = f"Bearer {token}"
        with translating((ValueError,), self._wrong_url):
            return self._transport.send(message, url, headers)

    def _wrong_url(self, error: ValueError) -> ConfigError:
        return ConfigError(f"{self.url}: {type(error).__name__}", hint="check the URL", known_remotes=True)

    def _bearer(self) -> str:
        if self._token is None:
            self._token = token_for(self.url)
        return self._token

    @property
    def _transport(self) -> Transport:
        from maskreg.store.transport import Transport

        with self._connecting:
            if self._connected is None:
                _, options, connect_seconds, read_seconds, _ = self.arguments
                self._connected = Transport(options.ca_bundle, connect_seconds, read_seconds)
            return self._connected


def _well_formed(url: str) -> str:
    # A port beyond all ports and an open bracket are found when they are asked for.
    _origin(urlsplit(url))
    return url


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    return parts.scheme, (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)

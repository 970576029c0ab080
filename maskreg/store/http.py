"""A store behind a service: its objects by HTTP, as far as the token's owner may read and write them.

The service decides what each key may hold (:mod:`maskreg.service.policy`): a writer adds objects that hash to what the
artifact's manifest says, so it has to know the manifest first::

    announce(digest, manifest)                      the service checks that it hashes to the digest
    put("artifacts/sha256/<hex>/data.zarr/...")     each is checked against the manifest before anybody sees it
    put("artifacts/sha256/<hex>/manifest.json")     readers see the artifact from now on, by its names

An object may come from another host, such as a signed link into a bucket. It is asked for without the token, and when
that host does not answer, the service itself is asked for the bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from maskreg.digest import Digest
from maskreg.errors import ConfigError, NotFoundError, UnavailableError
from maskreg.settings import StoreOptions
from maskreg.store.base import ObjectInfo
from maskreg.store.connection import Answer, Connection, ElsewhereError, Message
from maskreg.store.keys import check_key, check_prefix

MODIFIED = "x-maskreg-modified"
"""Header with the time of an object, to the microsecond."""

DIRECT = "x-maskreg-direct"
"""Header of a request whose answer has to come from the service itself: ``never``."""

_BY_LINK = 256 << 10
"""Smaller objects are not worth two more requests."""

_DELETERS = 8
_LISTING_BYTES = 1 << 30


class HttpStore:
    """The objects of a service's registry.

    Args:
        url: of the service.
        options: may name a CA bundle.
        patience: how long to wait and how often to try, as :class:`~maskreg.store.connection.Connection` takes it.

    Raises:
        ConfigError: not the URL of a service.
    """

    def __init__(
        self,
        url: str,
        options: StoreOptions = StoreOptions(),  # noqa: B008 - a frozen value
        **patience: float,
    ) -> None:
        self._arguments = (url, options, tuple(sorted(patience.items())))
        self.connection = Connection(url, options, **patience)  # type: ignore[arg-type]
        self.url = self.connection.url
        self._through_service = False
        self._principal: str | None = None

    @property
    def principal(self) -> str:
        """Who the token belongs to, as the service records it; empty without a token."""
        if self._principal is None:
            answer = self.connection.ask(Message("GET", "/whoami"))
            self._principal = str(_document(self.url, answer).get("name", ""))
        return self._principal

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """The whole object; see :class:`~maskreg.store.base.Store`."""
        path = _path(key)
        if not self._through_service:
            try:
                return self._get(key, Message("GET", path, max_bytes=max_bytes, elsewhere=True, accepted=(404,)))
            except ElsewhereError:
                # Such as a bucket in a network that this machine does not see.
                self._through_service = True
        headers = {DIRECT: "never"}
        return self._get(key, Message("GET", path, headers=headers, max_bytes=max_bytes, accepted=(404,)))

    def _get(self, key: str, message: Message) -> bytes:
        answer = self.connection.ask(message)
        if answer.status == 404:
            raise NotFoundError(f"{self.url}: there is no {key}")
        return answer.data

    def head(self, key: str) -> ObjectInfo | None:
        """The object's size and time, or None."""
        answer = self.connection.ask(Message("HEAD", _path(key), accepted=(404,)))
        if answer.status == 404:
            return None
        try:
            size, modified = int(answer.headers["x-maskreg-size"]), answer.headers[MODIFIED]
            return ObjectInfo(key, size, _time(modified))
        except (KeyError, ValueError) as error:
            raise self._strange() from error

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object; durable when this returns."""
        if not (len(data) >= _BY_LINK and key.startswith("artifacts/") and self._uploaded(key, bytes(data))):
            self.connection.ask(self._writing(key, data))

    def _uploaded(self, key: str, data: bytes) -> bool:
        # Whether it went where a signed link leads; a service without such links is not asked again.
        if self._through_service:
            return False
        row = {"key": key, "size": len(data), "sha256": f"sha256:{hashlib.sha256(data).hexdigest()}"}
        link = _document(self.url, self.connection.ask(_posting("/uploads", row)))
        if not link.get("url"):
            self._through_service = True
            return False
        try:
            self.connection.send_elsewhere(link["url"], link["headers"], data)
        except ElsewhereError:
            self._through_service = True
            return False
        self.connection.ask(_posting("/uploads/finished", {"key": key, "number": link["number"]}))
        return True

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none; durable when this returns True."""
        message = self._writing(key, data, {"If-None-Match": "*"}, accepted=(412,))
        return self.connection.ask(message).status != 412

    def _writing(
        self, key: str, data: bytes, headers: dict[str, str] | None = None, *, accepted: tuple[int, ...] = ()
    ) -> Message:
        content = bytes(data)
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        stated = {"Repr-Digest": f"sha-256=:{digest}:", "Content-Type": "application/octet-stream", **(headers or {})}
        return Message("PUT", _path(key), headers=stated, content=content, accepted=accepted)

    def announce(self, digest: Digest, manifest: bytes) -> None:
        """Say which objects an artifact has, before any of them is put.

        Raises:
            DataError: the manifest does not hash to the digest, or is none.
        """
        self.put(f"announced/sha256/{digest.hex}/manifest.json", manifest)

    def _listing(self, prefix: str) -> list[ObjectInfo]:
        message = Message("GET", "/objects", query={"prefix": prefix}, max_bytes=_LISTING_BYTES)
        for _ in range(3):
            lines = self.connection.ask(message).data.split(b"\n")
            try:
                rows = [json.loads(line) for line in lines if line]
                infos = [ObjectInfo(row["key"], row["size"], _time(row["modified"])) for row in rows[:-1]]
                if rows and rows[-1] == {"end": True, "count": len(infos)}:
                    return infos
            except (ValueError, KeyError, TypeError) as error:
                raise self._strange() from error
        raise UnavailableError(f"{self.url}: the listing of {prefix or 'all objects'} broke off three times")

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, one request each; a missing one is not an error."""
        paths = [_path(key) for key in keys]
        if paths:
            with ThreadPoolExecutor(min(_DELETERS, len(paths))) as pool:
                list(pool.map(lambda path: self.connection.ask(Message("DELETE", path)), paths))

    def clock(self) -> datetime:
        """The time by the service's clock, or by that of the store behind it."""
        answer = self.connection.ask(Message("GET", "/clock"))
        try:
            return _time(_document(self.url, answer)["now"])
        except (KeyError, ValueError, TypeError) as error:
            raise self._strange() from error

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key begins with ``prefix``, in key order; of those that the token's owner may see."""
        check_prefix(prefix)
        return iter(self._listing(prefix))

    def close(self) -> None:
        """Close the connections; the store must not be used afterwards."""
        self.connection.close()

    def _strange(self) -> ConfigError:
        return ConfigError(
            f"{self.url}: the answer is not one of a registry service of this version",
            hint="pip install --upgrade maskreg, or ask who runs the service",
        )

    def __repr__(self) -> str:
        return f"HttpStore({self.url!r})"

    def __eq__(self, value: object) -> bool:
        return isinstance(value, HttpStore) and self._arguments == value._arguments

    def __hash__(self) -> int:
        return hash(self._arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, self._arguments


def _unpickle(url: str, options: StoreOptions, patience: tuple[tuple[str, float], ...]) -> HttpStore:
    return HttpStore(url, options, **dict(patience))


def _path(key: str) -> str:
    return f"/objects/{quote(check_key(key), safe='/')}"


def _posting(path: str, row: dict[str, object]) -> Message:
    return Message("POST", path, headers={"Content-Type": "application/json"}, content=json.dumps(row).encode())


def _document(url: str, answer: Answer) -> dict[str, Any]:
    try:
        row = json.loads(answer.data)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise ConfigError(f"{url}: something else than a registry service answers", hint="maskreg remote list")
    return row


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)

"""A store behind a service: its objects by HTTP, as far as the token's owner can read and write them.

The service decides what each key can hold (``maskreg/service/gateway``): a writer adds objects that hash to what the
artifact's manifest says, so it has to know the manifest first::

    announce(digest, manifest)                      the service checks that it hashes to the digest
    put("artifacts/sha256/<hex>/data.zarr/...")     each is checked against the manifest before any reader sees it
    put("artifacts/sha256/<hex>/manifest.json")     readers see the artifact from now on, by its names

An object can come from another host, such as a signed link into a bucket. It is asked for without the token, and when
that host does not answer, the service itself is asked for the bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from maskreg.digest import Digest
from maskreg.document import checked
from maskreg.errors import NotFoundError, UnavailableError
from maskreg.parallel import each
from maskreg.ref import Ref
from maskreg.settings import StoreOptions
from maskreg.store.base import ObjectInfo, Store, check_key, check_prefix
from maskreg.store.connection import Connection, ElsewhereError
from maskreg.store.message import Message, document, understanding

MODIFIED = "x-maskreg-modified"
"""Header with the time of an object, to the microsecond."""

DIRECT = "x-maskreg-direct"
"""Header of a request whose answer has to come from the service itself: ``never``."""

_BY_LINK = 256 << 10
"""Smaller objects are not worth two more requests."""

_ARTIFACT = re.compile(r"artifacts/sha256/[0-9a-f]{64}/")
"""The listing of an artifact brings links to its objects along, which saves a request for each."""

_DELETERS = 8
_EVERY_PROJECT = "*"
_LISTING_BYTES = 1 << 30


@dataclass(frozen=True)
class _Whoami:
    name: str
    signs: bool
    projects: dict[str, str]


@dataclass(frozen=True)
class _Upload:
    number: str
    url: str
    headers: dict[str, str]


@dataclass(frozen=True)
class _Row:
    key: str
    size: int
    modified: datetime
    link: str = ""


class HttpStore(Store):
    """The objects of a service's registry."""

    def __init__(
        self,
        url: str,
        options: StoreOptions = StoreOptions(),  # noqa: B008 - a frozen value
        **patience: float,
    ) -> None:
        self.connection = Connection(url, options, **patience)  # type: ignore[arg-type]
        self.url = self.connection.url
        self._through_service = False
        self._whoami: _Whoami | None = None
        # Of the artifact that was listed last; each is used once, by whichever thread comes first.
        self._links: dict[str, str] = {}

    @property
    def service(self) -> HttpStore:
        """The service that keeps the objects."""
        return self

    @property
    def principal(self) -> str:
        """Who the token belongs to, as the service records it; empty without a token."""
        return self._identity().name

    @property
    def signs(self) -> bool:
        """Whether the service signs what is pushed, so that a client that reads it back has to check signatures."""
        return self._identity().signs

    def may_remove(self, project: str) -> bool:
        """Whether the token can remove the names of a project, as far as its roles say: they were asked for once."""
        roles = self._identity().projects
        return "admin" in (roles.get(project), roles.get(_EVERY_PROJECT))

    def _identity(self) -> _Whoami:
        if self._whoami is None:
            row = self.connection.document(Message("GET", "/whoami"))
            with understanding(self.url):
                self._whoami = checked(_Whoami, row, self.url)
        return self._whoami

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """The whole object; see :class:`~maskreg.store.base.Store`."""
        path = _path(key)
        if (data := self._linked(key, max_bytes)) is not None:
            return data
        if not self._through_service:
            try:
                return self._get(key, Message("GET", path, max_bytes=max_bytes, elsewhere=True, accepted=(404,)))
            except ElsewhereError:
                # Such as a bucket in a network that this machine does not see.
                self._through_service = True
        headers = {DIRECT: "never"}
        return self._get(key, Message("GET", path, headers=headers, max_bytes=max_bytes, accepted=(404,)))

    def _linked(self, key: str, max_bytes: int) -> bytes | None:
        # None where the listing gave no link, or one that is of no use any more; a fresh one might be.
        link = self._links.pop(key, "")
        if not link or self._through_service:
            return None
        try:
            return self.connection.fetch_elsewhere(link, key, max_bytes)
        except ElsewhereError:
            return None

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
        with understanding(self.url):
            return ObjectInfo(key, int(answer.headers["x-maskreg-size"]), _time(answer.headers[MODIFIED]))

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object; durable when this returns."""
        if not (len(data) >= _BY_LINK and key.startswith("artifacts/") and self._uploaded(key, bytes(data))):
            self.connection.ask(self._writing(key, data))

    def _uploaded(self, key: str, data: bytes) -> bool:
        # Whether it went where a signed link leads; a service without such links is not asked again.
        if self._through_service:
            return False
        row = {"key": key, "size": len(data), "sha256": f"sha256:{hashlib.sha256(data).hexdigest()}"}
        answer = self.connection.document(_posting("/uploads", row))
        with understanding(self.url):
            link = checked(_Upload, answer, self.url)
        if not link.url:
            self._through_service = True
            return False
        try:
            self.connection.send_elsewhere(link.url, link.headers, data)
        except ElsewhereError:
            self._through_service = True
            return False
        self.connection.ask(_posting("/uploads/finished", {"key": key, "number": link.number}))
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
        """Say which objects an artifact has, before any of them is put."""
        self.put(f"announced/sha256/{digest.hex}/manifest.json", manifest)

    def want_verified(self, digest: Digest) -> None:
        """Let the service verify an artifact itself, soon."""
        self.connection.ask(_posting(f"/artifacts/{digest}/verify", {}))

    def wait(self, ref: Ref, digest: Digest, seconds: float, replica: str) -> bool:
        """As :class:`~maskreg.store.base.Service` says."""
        row = self.document(_of_tag(ref), {"wait": f"{seconds:g}", "unless": digest, "replica": replica})
        with understanding(self.url):
            return bool(row["digest"] != digest)

    def expire(self, ref: Ref, keep: int) -> int:
        """Let the service delete what a tag has left behind, but for its newest versions; says how many artifacts."""
        row = self.connection.document(_posting(f"{_of_tag(ref)}/expire", {"keep": keep}))
        with understanding(self.url):
            return int(row["deleted"])

    def document(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """The document at a path of the service, as far as the token's owner can read it."""
        return self.connection.document(Message("GET", path, query=query))

    def _listing(self, prefix: str) -> list[ObjectInfo]:
        query = {"prefix": prefix, "links": "true"} if _ARTIFACT.fullmatch(prefix) else {"prefix": prefix}
        message = Message("GET", "/objects", query=query, max_bytes=_LISTING_BYTES)
        for _ in range(3):
            lines = [line for line in self.connection.ask(message).data.split(b"\n") if line]
            rows = [document(self.url, line) for line in lines]
            with understanding(self.url):
                listed = [checked(_Row, row, self.url) for row in rows[:-1]]
                infos = [_info(row, prefix) for row in listed]
            if rows and rows[-1] == {"end": True, "count": len(infos)}:
                if "links" in query:
                    self._links = {row.key: row.link for row in listed if row.link}
                return infos
        raise UnavailableError(f"{self.url}: the listing of {prefix or 'all objects'} broke off three times")

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, one request each; a missing one is not an error."""

        def delete(path: str) -> None:
            self.connection.ask(Message("DELETE", path))

        each([_path(key) for key in keys], delete, _DELETERS)

    def clock(self) -> datetime:
        """The time by the service's clock, or by the clock of the store behind it."""
        row = self.connection.document(Message("GET", "/clock"))
        with understanding(self.url):
            return _time(row["now"])

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key begins with ``prefix``, in key order; of those that the token's owner can see."""
        check_prefix(prefix)
        return iter(self._listing(prefix))

    def close(self) -> None:
        """Close the connections; the store must not be used afterwards."""
        self.connection.close()

    def __repr__(self) -> str:
        return f"HttpStore({self.url!r})"


def _path(key: str) -> str:
    return f"/objects/{quote(check_key(key), safe='/')}"


def _of_tag(ref: Ref) -> str:
    return f"/projects/{ref.project}/refs/{ref.name}/{ref.tag}"


def _posting(path: str, row: dict[str, object]) -> Message:
    return Message("POST", path, headers={"Content-Type": "application/json"}, content=json.dumps(row).encode())


def _info(row: _Row, prefix: str) -> ObjectInfo:
    # What a service lists becomes part of messages and of keys that are asked for next.
    if row.size < 0 or not row.key.startswith(prefix):
        raise ValueError(f"{row.key} is not below {prefix}")
    return ObjectInfo(check_key(row.key), row.size, row.modified.astimezone(UTC))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)

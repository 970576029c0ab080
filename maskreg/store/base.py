"""The contract of a store: byte objects by key, written and replaced as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import Any, Protocol

from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.ref import Ref


@dataclass(frozen=True, slots=True)  # a listing can hold a million
class ObjectInfo:
    """One stored object, without its bytes.

    Attributes:
        key: ``/``-separated, relative to the store's root.
        size: bytes.
        modified: when it was last written, by the store's clock (aware, UTC).
    """

    key: str
    size: int
    modified: datetime


class Files(Protocol):
    """What a store can do whose objects are files of this machine."""

    root: Path
    """The directory."""

    def path(self, key: str) -> Path:
        """The file of an object, which need not exist."""

    def opened(self, key: str, max_bytes: int) -> AbstractContextManager[tuple[BufferedReader, int]]:
        """The object's file and size, to be read in pieces; raises what ``get`` raises."""

    def get_into(self, key: str, into: memoryview) -> int:
        """Write the whole object to the beginning of ``into``; returns its size, and raises what ``get`` raises."""

    def make(self) -> None:
        """Make the directory; one that exists stays as it is."""


LINK_SECONDS = 900
"""How long a signed link is good for."""


@dataclass(frozen=True)
class Link:
    """A signed link to upload an object."""

    url: str
    headers: dict[str, str]


class Links(Protocol):
    """What a store can do whose objects are read and written by signed links, without credentials."""

    def read_link(self, key: str) -> str:
        """A link to read an object."""

    def upload_link(self, key: str, size: int, sha256: Digest) -> Link:
        """A link to upload an object of this size and digest."""

    def promote(self, staged: str, key: str, size: int, sha256: Digest) -> None:
        """Copy an upload to its key, if it is what was stated; the upload stays.

        Raises:
            NotFoundError: nothing was uploaded.
            CorruptError: it is something else.
            ConflictError: it was replaced or taken meanwhile.
        """


REPLICA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
"""The name of a replica: a process that follows a tag."""


class Service(Protocol):
    """What a store can do that is a service: it knows who asks, appends to the log itself, and keeps the index."""

    url: str
    """Its URL, without credentials."""

    @property
    def principal(self) -> str:
        """Whose token is used; empty without one."""

    @property
    def signs(self) -> bool:
        """Whether the service signs entries for clients that have no key."""

    def may_remove(self, project: str) -> bool:
        """Whether the token's owner can remove tags of a project."""

    def announce(self, digest: Digest, manifest: bytes) -> None:
        """Say which objects an artifact has, before any of them is put."""

    def want_verified(self, digest: Digest) -> None:
        """Let the service verify an artifact itself, soon."""

    def wait(self, ref: Ref, digest: Digest, seconds: float, replica: str) -> bool:
        """Wait while a tag points to an artifact, for less than a minute; whether it points to another one then.

        ``replica``: the name, as :data:`REPLICA` has it, of what serves this artifact's target.
        """

    def expire(self, ref: Ref, keep: int) -> int:
        """Let the service delete what a tag has left behind, but for its newest versions; says how many artifacts."""

    def document(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """The document at a path of the service, as far as the token's owner can read it."""


class Store(Protocol):
    """Strongly consistent object storage. Safe to use from many threads.

    An implementation inherits from this class. What only some stores can do is in ``files``, ``links`` and ``service``,
    which are None elsewhere: no caller asks for the class of a store.

    Every method raises ``UnavailableError`` when the store does not answer after retries,
    ``NotAllowedError`` when it refuses the credentials, and ``ValueError`` for a key that is not clean
    (absolute, empty, with ``..``, ``//``, a backslash or a control character).
    """

    url: str
    """Its URL, without credentials."""

    @property
    def files(self) -> Files | None:
        """The objects as files of this machine."""
        return None

    @property
    def links(self) -> Links | None:
        """Signed links to the objects."""
        return None

    @property
    def service(self) -> Service | None:
        """The service that keeps the objects."""
        return None

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """The whole object.

        Raises:
            NotFoundError: there is none.
            LimitError: it is larger than ``max_bytes``.
        """

    def head(self, key: str) -> ObjectInfo | None:
        """The object's size and time, or None when there is none."""

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object; durable on return, and readers see the old or the new bytes.

        Raises:
            NoSpaceError: the disk is full.
        """

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none: True when it was written, False when one exists.

        After a lost answer the existing object might be the caller's own: callers put a write id inside and read back.
        """

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key begins with ``prefix`` (which ends with ``/`` or is empty), in key order."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is not an error."""

    def close(self) -> None:
        """Close connections; the store must not be used afterwards."""

    def clock(self) -> datetime:
        """The time by the clock that stamps ``ObjectInfo.modified`` (aware, UTC)."""


# Clean keys: the only texts that become paths or object names

TEMPORARY = ".tmp"
"""A store's own folder; no key begins with it."""

PRIVATE = ".private"
"""The folder of a home's private keys, which no store reads, writes or lists."""

_MAX_KEY_BYTES = 1_024
_MAX_SEGMENT_BYTES = 255
# The control characters are these in every version of Unicode.
_UNCLEAN = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")


def check_key(key: str) -> str:
    """Return ``key`` when it is clean."""
    fault = _fault(key)
    if fault:
        raise UsageError(f"{key!r} is not a key: {fault}")
    return key


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` when it is empty, or a clean key and a slash."""
    if prefix:
        if not prefix.endswith("/"):
            raise UsageError(f"{prefix!r} is not a prefix: it must end with '/'")
        check_key(prefix[:-1])
    return prefix


def is_clean(key: str) -> bool:
    """Whether ``check_key`` would accept ``key``."""
    return not _fault(key)


def _fault(key: str) -> str:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "it is not UTF-8"
    segments = key.split("/")
    # A listing asks for each of its keys: most are short.
    is_long = size > _MAX_SEGMENT_BYTES
    if is_long and (size > _MAX_KEY_BYTES or any(len(s.encode()) > _MAX_SEGMENT_BYTES for s in segments)):
        return f"it is longer than {_MAX_KEY_BYTES} bytes, or a segment is longer than {_MAX_SEGMENT_BYTES}"
    if not key or not {"", ".", ".."}.isdisjoint(segments):
        return "a segment is empty, '.' or '..'"
    if _UNCLEAN.search(key):
        return "it has a backslash or a control character"
    if segments[0] == TEMPORARY:
        return f"{TEMPORARY}/ belongs to the store"
    if segments[0].casefold() == PRIVATE:
        return f"{PRIVATE}/ is not of the store"
    return ""

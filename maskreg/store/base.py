"""The contract of a store: byte objects by key, written and replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
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


class Store(Protocol):
    """Strongly consistent object storage. Safe to use from many threads.

    Every method raises ``UnavailableError`` when the store does not answer after retries,
    ``NotAllowedError`` when it refuses the credentials, and ``ValueError`` for a key that is not clean
    (absolute, empty, with ``..``, ``//``, a backslash or a control character).
    """

    url: str
    """Its URL, without credentials."""

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

        After a lost answer the existing object may be the caller's own: callers put a write id inside and read back.
        """

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key begins with ``prefix`` (which ends with ``/`` or is empty), in key order."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing one is not an error."""

    def close(self) -> None:
        """Close connections; the store must not be used afterwards."""

    def clock(self) -> datetime:
        """The time by the clock that stamps ``ObjectInfo.modified`` (aware, UTC)."""

"""Whether a store honors create-only writes, and which permission is missing.

S3-compatible services differ: some refuse the second of two writes with ``If-None-Match: *`` (412), some ignore the
header and let it replace the first, some do not know it (501). Documentation and versions do not tell, so two writes
to a fresh key do::

    create(k, first) -> True, create(k, second) -> False, get(k) = first     safe: refs need no lock
    create(k, first) -> True, create(k, second) -> True                      unsafe: a tag could be lost
    create(k, first) -> ConfigError (501)                                    unsupported

In all cases both objects are deleted again, and a store that still has them is refused.

Credentials that can list and read, and not write, serve a user who only pulls: nothing is tried then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar
from uuid import uuid4

from maskreg.bucket.client import PERMISSIONS
from maskreg.errors import ConfigError, CorruptError, NotAllowedError
from maskreg.store.base import Store

_T = TypeVar("_T")


@dataclass(frozen=True)
class Probe:
    """What a store allows, and whether create-only writes hold in one that can be written to.

    Attributes:
        create_only: ``safe`` when the second of two create-only writes was refused; ``unsafe`` when it
            replaced the first; ``unsupported`` when the store does not know such writes; ``untried`` when it must
            not be written to.
        reason: why it is not safe, for a message; empty when it is.
        writable: False when it can be listed and read, and not written to.
    """

    create_only: Literal["safe", "unsafe", "unsupported", "untried"]
    reason: str = ""
    writable: bool = True

    @property
    def safe(self) -> bool:
        """Whether refs can live in the store without a lock."""
        return self.create_only == "safe"


def probe(store: Store) -> Probe:
    """Try every method of a store on two small objects, which are deleted again."""
    folder = f"probe/{uuid4().hex}/"
    written, created = folder + "written", folder + "created"
    try:
        _try(store, "put", lambda: store.put(written, b"written"))
    except NotAllowedError as error:
        if not _readable(store, folder, written):
            raise
        return Probe("untried", error.message, writable=False)
    try:
        if _try(store, "get", lambda: store.get(written, max_bytes=64)) != b"written":
            raise CorruptError(written, f"{store.url} returns other bytes than were written")
        if _try(store, "list", lambda: [info.key for info in store.list(folder)]) != [written]:
            raise CorruptError(written, f"{store.url} does not list an object that was just written")
        return _try(store, "create", lambda: _create_twice(store, created))
    finally:
        _try(store, "delete", lambda: store.delete([written, created]))
        if _try(store, "get", lambda: store.head(written)) is not None:
            raise CorruptError(written, f"{store.url} still has it after deleting it")


def _readable(store: Store, folder: str, key: str) -> bool:
    try:
        store.head(key)
        return not any(store.list(folder))
    except NotAllowedError:
        return False


def _create_twice(store: Store, key: str) -> Probe:
    try:
        first, second = store.create(key, b"first"), store.create(key, b"second")
    except ConfigError as error:
        return Probe("unsupported", error.message)
    if first and not second and store.get(key, max_bytes=64) == b"first":
        return Probe("safe")
    return Probe("unsafe", f"{store.url} lets a create-only write replace an object")


def _try(store: Store, operation: str, action: Callable[[], _T]) -> _T:
    try:
        return action()
    except NotAllowedError as error:
        if store.url.startswith(("http://", "https://")):
            raise
        raise NotAllowedError(
            f"{store.url}: not allowed to {operation} (the permission {PERMISSIONS[operation]} in S3): {error.message}",
            hint=error.hint,
        ) from error

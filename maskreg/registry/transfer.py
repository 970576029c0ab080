"""What transfers share: the incoming folder of a local registry, and which artifact a tag of a remote is known to have.

A part of an artifact becomes visible as a whole, or not at all.

Pull fetches objects into ``incoming/<hex>/pull/``, outside the artifact, and moves them when all are verified::

    for each needed object not in artifacts/sha256/<hex>/:
        waiting already, with the right hash?   keep it: an interrupted pull left it (this is how pull resumes)
        otherwise                               fetch, hash, write it to incoming/
    move all of them, one rename each           same file system, so each rename is atomic
    write the manifest, then the ref            (settling)

Many renames are not atomic together. A crash after 3 of 5 leaves 3 objects in the artifact and 2 waiting. Readers
(:func:`maskreg.artifact.presence.begun_parts`) take a part whose missing objects all wait here for absent, not for
damaged, and the next pull moves the other 2. So once the first rename is done, what waits must not be deleted, and
garbage collection leaves it alone too.

What a tag of a remote pointed to is remembered, so that a push never moves it over what this machine does not know.

A pull or push of a tag leaves, in the local registry's store::

    tracked/<uuid>/<project>/<name>/<tag>.json    the artifact that the tag pointed to

A later push can move the tag from that artifact to another one, and from no other::

    ada   push x:v1   -> A     the tag is new          ada tracks A
    bob   push x:v1   -> B     bob tracks nothing     refused: the tag is at A, which ada set
    bob   push --force         on purpose: B           bob tracks B
    ada   push x:v1   -> A     ada tracks A           refused: the tag is at B, which bob set

The record names both artifacts while an entry is being written, so that a push that breaks off between the entry and
the record is not taken for another user's.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from maskreg.artifact.layout import artifact_prefix, incoming_prefix
from maskreg.artifact.presence import matches
from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.disk import filling, is_full, make_folder, require_space, sync_folder
from maskreg.errors import (
    CannotCreateError,
    ConflictError,
    DataError,
    LimitError,
    NotAllowedError,
    NotFoundError,
    UnavailableError,
)
from maskreg.limits import LIMITS
from maskreg.progress import Progress
from maskreg.ref import Ref
from maskreg.registry.registry import Registry
from maskreg.store import FileStore, Store
from maskreg.store.entry import RefEntry

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Object


_MARGIN_BYTES = 64 << 20
_KEPT = "what has arrived stays, and the same command continues"


class Landing:
    """Verified objects of one artifact that wait in the incoming folder."""

    def __init__(self, store: FileStore, digest: Digest) -> None:
        """Name the folder; nothing is written yet."""
        self._store = store
        self._prefix = f"{incoming_prefix(digest)}pull/"
        self._final = artifact_prefix(digest)

    def waiting(self) -> dict[str, int]:
        """Size in bytes of every waiting object, by key; not hashed."""
        return {info.key.removeprefix(self._prefix): info.size for info in self._store.list(self._prefix)}

    def has(self, entry: Object) -> bool:
        """Whether the object waits and its bytes hash to the right digest."""
        try:
            return matches(self._store.get(self._prefix + entry.key, max_bytes=entry.size), entry)
        except (NotFoundError, LimitError):
            return False

    def put(self, entry: Object, data: bytes) -> None:
        """Write an object that the caller has hashed."""
        self._store.put(self._prefix + entry.key, data)

    def admit(self, entries: Iterable[Object]) -> None:
        """Move objects into the artifact, one rename each."""
        folders = set()
        try:
            for entry in entries:
                path = self._store.path(self._final + entry.key)
                # A concurrent pull might have moved it already, or a collection removed the folder: settling looks.
                with contextlib.suppress(FileNotFoundError):
                    make_folder(path.parent)
                    self._store.path(self._prefix + entry.key).replace(path)
                folders.add(path.parent)
            for folder in folders:
                with contextlib.suppress(FileNotFoundError):
                    sync_folder(folder)
        except OSError as error:
            if is_full(error):
                raise
            raise CannotCreateError(f"cannot move objects into {self._store.root}: {error.strerror}") from error

    def prune(self) -> None:
        """Remove empty folders; objects of other parts that an interrupted pull left keep waiting."""
        root = self._store.root / self._prefix
        for folder in (*(Path(path) for path, _, _ in os.walk(root, topdown=False)), root.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextmanager
def space_for(root: Path, missing: Callable[[], int]) -> Iterator[None]:
    """Copy objects inside: what would fill the disk is not begun, and what fills it after all is reported.

    ``missing``: bytes that are still to be copied.
    """
    if needed := missing():
        require_space(root, needed, spare=_MARGIN_BYTES, what="the artifact", registry=str(root))
    with filling(root, missing, what="the rest of the artifact", left=_KEPT, registry=str(root)):
        yield


@dataclass
class Copying:
    """What was copied so far, over all rounds of settling; counted by many threads."""

    source: Store
    target: Store
    digest: Digest
    progress: Progress
    count: int = 0
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, entry: Object) -> None:
        """Count an object that was copied."""
        with self._lock:
            self.count += 1
            self.bytes += entry.size


TRACKED = "tracked/"
"""Prefix of the records in a local registry."""

_SCHEMA = "maskreg.tracked/1"


def track(local: Registry, remote: Registry, ref: Ref, *digests: Digest) -> None:
    """Remember what a tag of a remote points to, or is about to; a read-only local registry remembers nothing."""
    key = _key(remote, ref)
    data = sealed({"schema": _SCHEMA, "registry": remote.uuid, "tag": ref.path, "digests": sorted(set(digests))})
    try:
        if local.store.get(key, max_bytes=LIMITS.ref_bytes) == data:
            return
    except (NotFoundError, DataError):
        pass
    # Without the record a later push asks for --force, and loses nothing.
    with suppress(CannotCreateError, NotAllowedError, UnavailableError):
        local.store.put(key, data)


def tracked(local: Registry, remote: Registry, ref: Ref) -> frozenset[Digest]:
    """What this machine knows that a tag of a remote points to; empty when it neither pulled nor pushed the tag.

    A record that is damaged says nothing: a push that asks for it is then refused, unless it is forced.
    """
    key = _key(remote, ref)
    try:
        data = local.store.get(key, max_bytes=LIMITS.ref_bytes)
        row = parse_sealed(data, key, schema=_SCHEMA, max_bytes=LIMITS.ref_bytes)
        is_own = remote.uuid and (row["registry"], row["tag"]) == (remote.uuid, ref.path)
        return frozenset(Digest(digest) for digest in row["digests"]) if is_own else frozenset()
    except (NotFoundError, DataError, KeyError, TypeError, ValueError):
        return frozenset()


def is_tracked(local: Registry, ref: Ref) -> bool:
    """Whether this machine has pulled the tag from a remote or pushed it to one."""
    return any(info.key.endswith(f"/{ref.path}.json") for info in local.store.list(TRACKED))


def check_tracked(registries: tuple[Registry, Registry], ref: Ref, digest: Digest, head: RefEntry | None) -> None:
    """Refuse to move a tag of a remote from an artifact that this machine did not know it pointed to."""
    local, remote = registries
    if head is None or head.digest in (None, digest) or head.digest in tracked(local, remote, ref):
        return
    ours = local.head(replace(ref, digest=None))
    if ours is None or ours.deleted or (remote.uuid and ours.origin == remote.uuid):
        step, theirs = "to take theirs", ref
    else:
        step, theirs = "to see theirs", replace(ref, digest=head.digest)
    raise ConflictError(
        f"{ref} on {remote.name} is {head.digest.short}, set by {head.by} at {head.at:%Y-%m-%d %H:%M:%S} UTC; "
        f"moving it to {digest.short} would undo that, because this registry neither pulled nor pushed it",
        hint=step,
        theirs=theirs,
        remote=remote.name,
        options={"force": True},
    )


def _key(remote: Registry, ref: Ref) -> str:
    return f"{TRACKED}{remote.uuid}/{ref.path}.json"


_ENTRIES = 256
"""Entries of a tag's log, the newest ones, among which a README is looked for."""


def newer_readme(remote: Registry, local: str, head: RefEntry | None) -> str:
    """The local README of a tag if the remote's tag never had it, so that it is newer; else the remote's.

    ``head``: the remote's latest entry.
    """
    if head is None or head.deleted or head.card.readme == local:
        return local
    earlier = islice(remote.refs.back(head), _ENTRIES)
    return head.card.readme if not local or any(entry.card.readme == local for entry in earlier) else local

"""The incoming folder of a local registry: a part becomes visible as a whole, or not at all.

Pull fetches objects into ``incoming/<hex>/pull/``, outside the artifact, and moves them when all are verified::

    for each needed object not in artifacts/sha256/<hex>/:
        waiting already, with the right hash?   keep it: an interrupted pull left it (this is how pull resumes)
        otherwise                               fetch, hash, write it to incoming/
    move all of them, one rename each           same file system, so each rename is atomic
    write the manifest, then the ref            (settling)

Many renames are not atomic together. A crash after 3 of 5 leaves 3 objects in the artifact and 2 waiting. Readers
(:func:`maskreg.artifact.presence.begun_parts`) take a part whose missing objects all wait here for absent, not for
damaged, and the next pull moves the other 2. So once the first rename is done, nothing that waits may be deleted, and
garbage collection leaves it alone too.

A pull uses a folder that all pulls of the artifact share; an import has its own, because its bytes come from a file
that may be wrong.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from maskreg.artifact.layout import artifact_prefix, incoming_prefix
from maskreg.artifact.presence import matches
from maskreg.digest import Digest
from maskreg.disk import filling, is_full, make_folder, require_space, sync_folder
from maskreg.errors import CannotCreateError, LimitError, NotFoundError
from maskreg.progress import Progress
from maskreg.store import FileStore, Store

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Object

_MARGIN_BYTES = 64 << 20
_WHAT = "the artifact"
_KEPT = "what has arrived stays, and the same command continues"


class Landing:
    """Verified objects of one artifact that wait in the incoming folder."""

    def __init__(self, store: FileStore, digest: Digest, visit: str = "pull") -> None:
        """Name the folder; nothing is written yet."""
        self._store = store
        self._prefix = f"{incoming_prefix(digest)}{visit}/"
        self._final = artifact_prefix(digest)
        self._admitting = False

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
        self._admitting = True
        try:
            for entry in entries:
                path = self._store.path(self._final + entry.key)
                make_folder(path.parent)
                # A concurrent pull of the same artifact may have moved it already.
                with contextlib.suppress(FileNotFoundError):
                    self._store.path(self._prefix + entry.key).replace(path)
                folders.add(path.parent)
            for folder in folders:
                sync_folder(folder)
            self._admitting = False
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

    def clear(self) -> None:
        """Delete everything that waits, unless moving it broke off."""
        if not self._admitting:
            shutil.rmtree(self._store.root / self._prefix, ignore_errors=True)
            self.prune()


def check_space(root: Path, needed_bytes: int) -> None:
    """Refuse to start what would fill the disk."""
    if needed_bytes:
        require_space(root, needed_bytes, spare=_MARGIN_BYTES, what=_WHAT, registry=str(root))


@contextmanager
def landing_space(root: Path, missing: Callable[[], int]) -> Iterator[None]:
    """Copy objects inside; a disk that becomes full nevertheless is reported with what is still missing."""
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

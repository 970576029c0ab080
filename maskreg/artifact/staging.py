"""The folder in which an artifact is assembled, and its publication by one rename.

::

    staging/HOST-PID-NONCE/    objects are written and hashed; no reader, no fsync yet
    manifest.json              last: it lists all objects with their digests
    fsync everything           on many threads, since a disk commits many at once
    rename the folder          to artifacts/sha256/<hex>/; atomic, so the artifact appears as a whole

When the artifact exists already (the same inputs give the same digest), the rename fails and the existing folder stays.
Any of its objects that are missing or damaged are then replaced by the new ones, from the incoming folder, where
readers look for objects that are about to be moved (see :mod:`maskreg.registry.transfer`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import socket
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from filecmp import cmp
from pathlib import Path

from maskreg.artifact.layout import MANIFEST, artifact_prefix, incoming_prefix
from maskreg.artifact.manifest import Manifest, Object, check_objects, dump_manifest
from maskreg.digest import Digest
from maskreg.disk import make_folder, make_root, new_file, sync_folder, write_all
from maskreg.store.file import FileStore, in_folder

_SYNC_THREADS = 16


class StagingStore(FileStore):
    """A private folder that records size and digest of every object and is synced once, at the end."""

    def __init__(self, root: Path, registry: Path) -> None:
        super().__init__(root)
        self._registry = registry
        self.written: dict[str, Object] = {}

    def put(self, key: str, data: bytes) -> None:
        """Write an object and record it; durable after :meth:`sync`."""
        self.put_pieces(key, [data])

    def put_pieces(self, key: str, pieces: Iterable[bytes | memoryview]) -> None:
        """The same with an object that comes in pieces."""
        path, size, digest = self.path(key), 0, hashlib.sha256()
        with self.errors("write", key):
            if not path.parent.is_dir():
                make_root(self._registry)
                make_folder(path.parent)
            with new_file(path, replace=True) as file:
                for piece in pieces:
                    write_all(file, piece)
                    digest.update(piece)
                    size += len(piece)
        self.written[key] = Object(key=key, size=size, sha256=str(Digest(f"sha256:{digest.hexdigest()}")))

    def sync(self) -> None:
        """Make all files and folders durable."""
        with self.errors("write", "an object"), ThreadPoolExecutor(_SYNC_THREADS) as pool:
            list(pool.map(_sync, [self.root, *self.root.rglob("*")]))


def new_folder(root: Path) -> Path:
    """A path for work that goes on in the registry in the folder ``root``; not created yet.

    What a process that ended left there is found by its name.
    """
    return root / "staging" / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


class Staging:
    """One artifact that is being assembled."""

    def __init__(self, root: Path) -> None:
        """Start one in the registry in the folder ``root``."""
        self._root = root
        self._folder = new_folder(root)
        self.store = StagingStore(self._folder, root)

    def discard(self) -> None:
        """Delete what was not published."""
        if self._folder.exists():
            shutil.rmtree(self._folder)

    @property
    def objects(self) -> tuple[Object, ...]:
        """The written objects, in key order."""
        return tuple(self.store.written[key] for key in sorted(self.store.written))

    def publish(self, manifest: Manifest) -> Digest:
        """Write the manifest and move the artifact into the registry, or repair it when it exists already."""
        check_objects(manifest)
        data = dump_manifest(manifest)
        digest = Digest.of(data)
        self.store.put(MANIFEST, data)
        artifact = self._root / artifact_prefix(digest)
        self.store.sync()
        # A collection can remove what is there, and the folder, at any time.
        for _ in in_folder(artifact.parent):
            try:
                self._folder.rename(artifact)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                self._repair(digest, artifact, manifest.objects)
            break
        with contextlib.suppress(FileNotFoundError):
            sync_folder(artifact.parent)
        return digest

    def _repair(self, digest: Digest, artifact: Path, objects: tuple[Object, ...]) -> None:
        waiting = self._root / incoming_prefix(digest) / self._folder.name
        for _ in in_folder(waiting.parent):
            with contextlib.suppress(FileNotFoundError):
                self._folder.rename(waiting)
                break
        try:
            for key in [*(o.key for o in objects), MANIFEST]:
                new, existing = waiting / key, artifact / key
                for _ in in_folder(existing.parent):
                    with contextlib.suppress(FileNotFoundError):
                        if not existing.is_file() or not cmp(existing, new, shallow=False):
                            new.replace(existing)
                        break
        finally:
            shutil.rmtree(waiting)
            with contextlib.suppress(OSError):  # another pull's objects wait in it
                waiting.parent.rmdir()


def _sync(path: Path) -> None:
    if path.is_dir():
        sync_folder(path)
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())

"""A folder in which an artifact is put together, and from which it moves to its place in one rename."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from maskreg.artifact.layout import MANIFEST, artifact_prefix, incoming_prefix, part_of
from maskreg.artifact.manifest import Manifest, Object, Part, PartName, check_objects, dump_manifest
from maskreg.digest import Digest
from maskreg.disk import sync_folder
from maskreg.store.file import FileStore

_SYNC_THREADS = 16
# They wait for the disk, which commits many at once.


class StagingStore(FileStore):
    """A folder that nobody else sees yet: remembers size and digest of every object, and is synced once, at the end."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.written: dict[str, Object] = {}

    def put(self, key: str, data: bytes) -> None:
        """Write an object and remember it; durable after :meth:`sync`."""
        path = self.path(key)
        with self.errors("write", key):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.written[key] = Object(key=key, size=len(data), sha256=str(Digest.of(data)))

    def sync(self) -> None:
        """Make everything durable, files and folders."""
        with self.errors("write", ""), ThreadPoolExecutor(_SYNC_THREADS) as pool:
            list(pool.map(_sync, [self.root, *self.root.rglob("*")]))


class Staging:
    """One artifact in the making.

    Attributes:
        store: takes its objects.
    """

    def __init__(self, root: Path) -> None:
        """Start one in the registry whose folder ``root`` is."""
        nonce = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._root = root
        self._folder = root / "staging" / nonce
        self.store = StagingStore(self._folder)

    def discard(self) -> None:
        """Remove what was not published."""
        if self._folder.exists():
            shutil.rmtree(self._folder)

    @property
    def objects(self) -> tuple[Object, ...]:
        """What was written, in key order."""
        return tuple(self.store.written[key] for key in sorted(self.store.written))

    def publish(self, manifest: Manifest) -> Digest:
        """Write the manifest and move the artifact to its place.

        An artifact that is there already is kept, and any of its objects that are missing or damaged are
        replaced by the fresh ones.

        Returns:
            The artifact's digest.
        """
        check_objects(manifest)
        data = dump_manifest(manifest)
        digest = Digest.of(data)
        self.store.put(MANIFEST, data)
        self._move(digest, manifest.objects)
        return digest

    def _move(self, digest: Digest, objects: tuple[Object, ...]) -> None:
        place = self._root / artifact_prefix(digest)
        place.parent.mkdir(parents=True, exist_ok=True)
        self.store.sync()
        try:
            self._folder.rename(place)
        except OSError:
            if not place.is_dir():
                raise
            self._heal(digest, place, objects)
        sync_folder(place.parent)

    def _heal(self, digest: Digest, place: Path, objects: tuple[Object, ...]) -> None:
        # From a place where readers look for what is about to be moved: a kill in between leaves no broken part.
        waiting = self._root / incoming_prefix(digest) / self._folder.name
        waiting.parent.mkdir(parents=True, exist_ok=True)
        self._folder.rename(waiting)
        try:
            for key in [*(o.key for o in objects), MANIFEST]:
                fresh, there = waiting / key, place / key
                if not there.is_file() or there.read_bytes() != fresh.read_bytes():
                    there.parent.mkdir(parents=True, exist_ok=True)
                    fresh.replace(there)
        finally:
            shutil.rmtree(waiting)
            with contextlib.suppress(OSError):  # somebody else's objects wait there too
                waiting.parent.rmdir()


def part_entry(part: PartName, objects: tuple[Object, ...], codec: str) -> Part:
    """What a manifest says of a part: how it is coded, and how many objects and bytes it has."""
    mine = [o.size for o in objects if part_of(o.key) == part]
    return Part(codec=codec, objects=len(mine), size=sum(mine))


def _sync(path: Path) -> None:
    if path.is_dir():
        sync_folder(path)
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())

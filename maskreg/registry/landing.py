"""Where objects wait until all of them are here and hashed: a part appears as a whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from maskreg.artifact.layout import artifact_prefix, incoming_prefix
from maskreg.artifact.manifest import Object
from maskreg.artifact.presence import matches
from maskreg.digest import Digest
from maskreg.disk import free_bytes, sync_folder
from maskreg.errors import CannotCreateError, LimitError, NoSpaceError, NotFoundError
from maskreg.store.base import Store

_MARGIN_BYTES = 64 << 20


class LocalStore(Store, Protocol):
    """A store whose objects are files on this machine."""

    root: Path
    """The directory."""

    def path(self, key: str) -> Path:
        """The file of an object."""


class Landing:
    """Verified objects of one artifact, outside its prefix; what an interrupted pull left is used by the next."""

    def __init__(self, store: LocalStore, digest: Digest, visit: str = "pull") -> None:
        """Name the place; nothing is written yet.

        Args:
            store: of the local registry.
            digest: the artifact.
            visit: who shares the place: every pull of the same artifact does.
        """
        self._store = store
        self._prefix = f"{incoming_prefix(digest)}{visit}/"
        self._final = artifact_prefix(digest)
        self._admitting = False

    def waiting(self) -> dict[str, int]:
        """What waits here: key below the artifact, and bytes; not hashed."""
        return {info.key.removeprefix(self._prefix): info.size for info in self._store.list(self._prefix)}

    def has(self, entry: Object) -> bool:
        """Whether the object waits here, its bytes hashed just now."""
        try:
            return matches(self._store.get(self._prefix + entry.key, max_bytes=entry.size), entry)
        except (NotFoundError, LimitError):
            return False

    def put(self, entry: Object, data: bytes) -> None:
        """Keep the bytes of an object, which the caller has hashed."""
        self._store.put(self._prefix + entry.key, data)

    def admit(self, entries: Iterable[Object]) -> None:
        """Move objects to their places in the artifact, one rename each.

        Until the last is moved, the others wait here, and readers take their part for absent. So nothing that
        waits may be removed from the first rename on.
        """
        folders = set()
        self._admitting = True
        try:
            for entry in entries:
                place = self._store.path(self._final + entry.key)
                place.parent.mkdir(parents=True, exist_ok=True)
                # Another pull of the same artifact may have moved it already.
                with contextlib.suppress(FileNotFoundError):
                    self._store.path(self._prefix + entry.key).replace(place)
                folders.add(place.parent)
            for folder in folders:
                sync_folder(folder)
            self._admitting = False
        except OSError as error:
            raise CannotCreateError(f"cannot move objects into {self._store.root}: {error.strerror}") from error

    def prune(self) -> None:
        """Remove folders that are empty; what another part's interrupted pull left stays for its next one."""
        place = self._store.root / self._prefix
        for folder in (*(Path(found) for found, _, _ in os.walk(place, topdown=False)), place.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def clear(self) -> None:
        """Remove everything that waits here, unless moving it broke off."""
        if not self._admitting:
            shutil.rmtree(self._store.root / self._prefix, ignore_errors=True)
            self.prune()


def check_space(root: Path, needed_bytes: int) -> None:
    """Refuse to start what would fill the disk.

    Raises:
        NoSpaceError: fewer bytes are free than needed, with a margin for directories and the catalog.
    """
    free = free_bytes(root)
    if needed_bytes and free < needed_bytes + _MARGIN_BYTES:
        raise NoSpaceError(
            f"{root}: {needed_bytes} bytes are needed and {free} are free",
            hint="maskreg gc removes what no name points to; MASKREG_HOME names another disk",
        )

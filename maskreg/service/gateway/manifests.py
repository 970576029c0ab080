"""What the manifests of a store say about the objects of their artifacts, of the few that are being written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.errors import CorruptError, NotFoundError, UsageError
from maskreg.limits import LIMITS
from maskreg.service.gateway.policy import ANNOUNCED, Key
from maskreg.service.remembered import Remembered
from maskreg.store import Store

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Object

_TABLES = 16


class Manifests:
    """Tables of objects by artifact. Safe to use from many threads."""

    def __init__(self, store: Store) -> None:
        """Read manifests of this store; none is read yet."""
        self._store = store
        self._tables: Remembered[Digest, Mapping[str, Object]] = Remembered(_TABLES)

    def expected(self, key: Key) -> Object:
        """What the manifest of an artifact says about an object, whoever wants to know.

        Raises:
            UsageError: the manifest was not sent yet.
            CorruptError: the manifest lists no such object.
        """
        assert key.digest is not None  # it is of an artifact
        entry = self._table(key.digest).get(key.name)
        if entry is None:
            raise CorruptError(key.key, "the manifest lists no such object")
        return entry

    def size(self, digest: Digest) -> int:
        """Bytes of all objects of an artifact, but for the manifest itself.

        Raises:
            UsageError: the manifest was not sent yet.
        """
        return sum(entry.size for entry in self._table(digest).values())

    def load(self, digest: Digest, data: bytes) -> Mapping[str, Object]:
        """Take in a manifest.

        Raises:
            DataError: it is none, or has another digest.
        """
        from maskreg.artifact.manifest import load_manifest

        return self._tables.put(digest, {entry.key: entry for entry in load_manifest(data, digest).objects})

    def _table(self, digest: Digest) -> Mapping[str, Object]:
        if (table := self._tables.get(digest)) is not None:
            return table
        for key in (artifact_prefix(digest) + MANIFEST, announcement(digest)):
            try:
                return self.load(digest, self._store.get(key, max_bytes=LIMITS.manifest_bytes))
            except NotFoundError:
                continue
        raise unknown(digest)


def announcement(digest: Digest) -> str:
    """Key of the manifest of an artifact that is on its way."""
    return f"{ANNOUNCED}{digest.hex}/{MANIFEST}"


def unknown(digest: Digest) -> UsageError:
    """The error for objects that come before their manifest."""
    return UsageError(
        f"the manifest of {digest.short} is not known here, so its objects cannot be checked",
        hint=f"PUT it to {announcement(digest)} first",
    )

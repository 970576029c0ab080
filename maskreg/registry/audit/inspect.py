"""Looking at one artifact: every object is hashed, and opened as readers open it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from maskreg.artifact.analysis import read_analysis
from maskreg.artifact.layout import MANIFEST, artifact_prefix, part_of
from maskreg.artifact.manifest import Manifest, Object
from maskreg.artifact.presence import begun_parts, listing, objects_of, read_manifest, read_object, strays
from maskreg.artifact.reader import Artifact
from maskreg.artifact.recount import recount
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, MaskregError, NotFoundError, UsageError
from maskreg.parallel import each
from maskreg.progress import Progress
from maskreg.store.base import Store

_WRONG = (DataError, NotFoundError, UsageError)
# What a damaged or forged artifact raises. Others say that the store cannot be read now, and end the audit.


class Inspector:
    """Inspects artifacts one after another; what is wrong with one does not keep it from the next.

    Attributes:
        objects: how many objects were hashed.
        bytes: their size.
        counts: whether the counts of tensor tables are compared with the masks.
    """

    def __init__(self, store: Store, progress: Progress, jobs: int, *, count: bool) -> None:
        """Name the store."""
        self.objects = 0
        self.bytes = 0
        self._store = store
        self._progress = progress
        self._jobs = jobs
        self.counts = count
        self._lock = threading.Lock()

    def inspect(self, digest: Digest) -> list[CorruptError]:
        """What is wrong with an artifact, by key.

        ::

            manifest        its digest, its texts, what it states about itself
            listing         objects that it does not list
            opening         tensor table and figures, Zarr metadata, lengths, codecs, file names, analysis
            every object    size and digest; shards as their array's metadata says
            counting        moved coordinates and fingerprints, with ``count``
        """
        prefix = artifact_prefix(digest)
        try:
            _, manifest = read_manifest(self._store, digest)
            present = listing(self._store, digest)
            # A part without any object was not pulled; one with some objects has to be complete.
            chosen = objects_of(manifest, begun_parts(self._store, digest, manifest, present))
        except _WRONG as error:
            return [_at(prefix, None, error)]
        if not any(part_of(key) for key in present):
            return [
                CorruptError(
                    prefix + MANIFEST,
                    "no object of any part of the artifact is here",
                    hint="fetch or extract it again",
                    artifact=digest,
                )
            ]
        damaged = [CorruptError(prefix + key, "not an object of this artifact") for key in strays(manifest, present)]
        opened, unreadable = self._open(digest, manifest)
        damaged += self._hash(digest, chosen, opened)
        if not damaged and unreadable is None and opened is not None and self.counts:
            unreadable = self._recount(opened, manifest, damaged)
        # A damaged object is what keeps an artifact from opening, and is reported already.
        if unreadable is not None and not damaged:
            damaged.append(_at(prefix, manifest, unreadable))
        return sorted(damaged, key=lambda error: error.key)

    def _open(self, digest: Digest, manifest: Manifest) -> tuple[Artifact | None, MaskregError | None]:
        artifact = None
        try:
            artifact = Artifact(self._store, digest, manifest)
            artifact.check_layout()
            if "analysis" in artifact.present():
                read_analysis(artifact)
        except _WRONG as error:
            return artifact, error
        return artifact, None

    def _hash(self, digest: Digest, objects: Iterable[Object], opened: Artifact | None) -> list[CorruptError]:
        prefix = artifact_prefix(digest)
        damaged: list[CorruptError] = []

        def read(entry: Object) -> None:
            try:
                if opened is None:
                    read_object(self._store, digest, entry)
                else:
                    opened.check_object(entry)
            except _WRONG as error:
                with self._lock:
                    damaged.append(CorruptError(prefix + entry.key, _fault(error), hint=error.hint, **error.facts))
            with self._lock:
                self.objects += 1
                self.bytes += entry.size
            self._progress.advance(entry.size)

        each(list(objects), read, self._jobs)
        return damaged

    def _recount(self, artifact: Artifact, manifest: Manifest, damaged: list[CorruptError]) -> MaskregError | None:
        try:
            if "mask" in artifact.present():
                for fault in recount(artifact, progress=self._progress, jobs=self._jobs):
                    damaged.append(_at(artifact_prefix(artifact.digest), manifest, DataError(f"tensors.json: {fault}")))
        except _WRONG as error:
            return error
        return None


def _at(prefix: str, manifest: Manifest | None, error: MaskregError) -> CorruptError:
    """An error about a document or object of an artifact, under its key in the store."""
    name = error.key if isinstance(error, CorruptError) else error.message.partition(": ")[0]
    name = name.removeprefix(prefix)
    known = manifest is not None and name in {entry.key for entry in manifest.objects}
    return CorruptError(prefix + (name if known else MANIFEST), _fault(error, name), hint=error.hint, **error.facts)


def _fault(error: MaskregError, name: str = "") -> str:
    name = error.key if isinstance(error, CorruptError) else name
    return error.message.removeprefix(f"{name}: ")

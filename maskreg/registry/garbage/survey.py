"""Finding what a garbage collection may delete: one listing of all artifacts, of which only sums are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from maskreg.artifact.layout import ARTIFACTS, MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.progress import SILENT, Progress, counting
from maskreg.registry.garbage.report import Collected
from maskreg.store.backrefs import NAMES, BackReference
from maskreg.store.base import ObjectInfo, Store


@dataclass(frozen=True)
class Candidate:
    """An artifact that may be deleted.

    Attributes:
        report: what it is, for people.
        listing: hash of the names, sizes and times of its objects: any change shows.
        references: its back references.
    """

    report: Collected
    listing: bytes
    references: tuple[BackReference, ...] = ()

    @property
    def digest(self) -> Digest:
        """The artifact."""
        return self.report.digest


@dataclass
class Survey:
    """All artifacts of a store.

    Attributes:
        candidates: those that may be deleted, by digest.
        artifacts: how many there are, candidates included.
        complete: how many of them have a manifest.
        stale: back references to artifacts that are not listed, and that no name keeps.
        newest: when the newest object of an artifact was written, by the store's clock (aware); None without any.
    """

    candidates: dict[Digest, Candidate] = field(default_factory=dict)
    artifacts: int = 0
    complete: int = 0
    stale: list[BackReference] = field(default_factory=list)
    newest: datetime | None = None


def survey(
    store: Store, is_spared: Callable[[Digest], bool], deadline: datetime, progress: Progress = SILENT
) -> Survey:
    """Find the artifacts that no name spares and whose objects were all written before the deadline.

    Args:
        store: where they are.
        is_spared: whether names keep an artifact.
        deadline: by the store's clock (aware).
        progress: progress callback, in artifacts.
    """
    result = Survey()
    references = _References(store)
    for digest, infos in counting(progress, "list artifacts", _artifacts(store)):
        result.artifacts += 1
        result.stale += references.before(digest)
        # Read to the end in any case: whether there is a manifest is counted.
        candidate = examine(digest, infos)
        result.complete += candidate.report.complete
        result.newest = max(result.newest or candidate.report.modified, candidate.report.modified)
        of_this = tuple(references.of(digest))
        if candidate.report.modified <= deadline and not is_spared(digest):
            result.candidates[digest] = Candidate(candidate.report, candidate.listing, of_this)
    result.stale += references.rest()
    result.stale = [r for r in result.stale if r.info.modified <= deadline and not is_spared(r.digest)]
    return result


def examine(digest: Digest, infos: Iterable[ObjectInfo]) -> Candidate:
    """Add up a listing of an artifact, which must not be empty.

    Args:
        digest: the artifact.
        infos: its objects, in key order.
    """
    state = hashlib.sha256()
    manifest = artifact_prefix(digest) + MANIFEST
    objects = size = 0
    complete = False
    times = []
    for info in infos:
        state.update(f"{info.key}\n{info.size}\n{info.modified.timestamp()}\n".encode())
        objects, size, complete = objects + 1, size + info.size, complete or info.key == manifest
        times.append(info.modified)
    return Candidate(Collected(digest, objects, size, max(times), complete), state.digest())


class _References:
    # The back references of a store beside its artifacts: both are listed in the order of their digests.

    def __init__(self, store: Store) -> None:
        parsed = (BackReference.of(info) for info in store.list(NAMES))
        self._rest = (reference for reference in parsed if reference is not None)
        self._next = next(self._rest, None)

    def before(self, digest: Digest) -> Iterator[BackReference]:
        while self._next is not None and self._next.digest.hex < digest.hex:
            yield self._take()

    def of(self, digest: Digest) -> Iterator[BackReference]:
        while self._next is not None and self._next.digest == digest:
            yield self._take()

    def rest(self) -> Iterator[BackReference]:
        while self._next is not None:
            yield self._take()

    def _take(self) -> BackReference:
        reference = self._next
        assert reference is not None
        self._next = next(self._rest, None)
        return reference


def _artifacts(store: Store) -> Iterator[tuple[Digest, Iterator[ObjectInfo]]]:
    for name, infos in groupby(store.list(ARTIFACTS), lambda info: info.key.split("/")[2]):
        try:
            yield Digest(f"sha256:{name}"), infos
        except ValueError:
            continue  # not an artifact

"""Finding what a garbage collection may delete: one listing of all artifacts, of which only sums are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from maskreg.artifact.layout import ARTIFACTS
from maskreg.digest import Digest
from maskreg.registry.garbage import Collected
from maskreg.store.base import ObjectInfo, Store


@dataclass(frozen=True)
class Candidate:
    """An artifact that may be deleted.

    Attributes:
        report: what it is, for people.
        listing: hash of the names, sizes and times of its objects: any change shows.
    """

    report: Collected
    listing: bytes

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
    """

    candidates: dict[Digest, Candidate]
    artifacts: int


def survey(store: Store, is_spared: Callable[[Digest], bool], deadline: datetime) -> Survey:
    """Find the artifacts that no name spares and whose objects were all written before the deadline.

    Args:
        store: where they are.
        is_spared: whether names keep an artifact.
        deadline: by the store's clock (aware).
    """
    result = Survey({}, 0)
    for digest, infos in _artifacts(store):
        result.artifacts += 1
        if not is_spared(digest):
            candidate = examine(digest, infos)
            if candidate.report.modified <= deadline:
                result.candidates[digest] = candidate
    return result


def examine(digest: Digest, infos: Iterable[ObjectInfo]) -> Candidate:
    """Add up a listing of an artifact, which must not be empty.

    Args:
        digest: the artifact.
        infos: its objects, in key order.
    """
    state = hashlib.sha256()
    objects = size = 0
    times = []
    for info in infos:
        state.update(f"{info.key}\n{info.size}\n{info.modified.timestamp()}\n".encode())
        objects, size = objects + 1, size + info.size
        times.append(info.modified)
    return Candidate(Collected(digest, objects, size, max(times)), state.digest())


def _artifacts(store: Store) -> Iterator[tuple[Digest, Iterator[ObjectInfo]]]:
    for name, infos in groupby(store.list(ARTIFACTS), lambda info: info.key.split("/")[2]):
        try:
            yield Digest(f"sha256:{name}"), infos
        except ValueError:
            continue  # not an artifact

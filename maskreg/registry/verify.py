"""Hashing every stored byte: each damaged object is reported, and the rest is still verified."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.manifest import Object
from maskreg.artifact.presence import begun_parts, listing, objects_of, read_manifest, read_object, strays
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, NotFoundError
from maskreg.parallel import each
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry.index import digests_in
from maskreg.registry.registry import Registry
from maskreg.result import Result
from maskreg.store.base import Store


@dataclass(frozen=True)
class Damage:
    """One damaged object.

    Attributes:
        digest: the artifact; None for an entry of the ref log.
        names: live references that point to it.
        key: the object, as the store names it.
        what: the fault, for a message.
    """

    digest: Digest | None
    names: tuple[str, ...]
    key: str
    what: str


@dataclass(frozen=True)
class Verified(Result):
    """What was hashed, and what is damaged.

    Attributes:
        artifacts: how many were verified.
        objects: how many objects were hashed.
        bytes: their size.
        damaged: everything that is damaged, by artifact and key.
    """

    artifacts: int
    objects: int
    bytes: int
    damaged: tuple[Damage, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damaged

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {**super().to_json(), "ok": self.ok}


def verify(
    registry: Registry, artifact: Ref | Digest | None = None, *, progress: Progress = SILENT, jobs: int = 4
) -> Verified:
    """Hash every object of one artifact, or of all that the registry has or that a name points to.

    Damage is reported, and does not stop the rest from being verified.

    Args:
        registry: where they are.
        artifact: which one; all of them when left out.
        progress: progress callback, in hashed bytes, one phase for each artifact.
        jobs: objects that are hashed at the same time.

    Raises:
        NotFoundError: there is no such name, or nothing of such an artifact.
    """
    digests = None
    if artifact is not None:
        digests = [registry.resolve(artifact).digest if isinstance(artifact, Ref) else artifact]
    names = defaultdict(list)
    unreadable: list[CorruptError] = []
    for entry in registry.refs.heads(unreadable):
        if entry.digest is not None:
            names[entry.digest].append(str(entry.ref))
    chosen = sorted({*names, *digests_in(registry.store)} if digests is None else set(digests))
    if isinstance(artifact, Digest) and artifact not in names and not listing(registry.store, artifact):
        raise NotFoundError(
            f"artifact {artifact.short} is not in {registry.url}", hint="maskreg list shows what there is"
        )
    verifier = _Verifier(registry.store, progress, jobs)
    for digest in chosen:
        verifier.verify(digest)
    damaged = [_damage(digest, names[digest], error) for digest, error in verifier.damaged]
    damaged.sort(key=lambda damage: damage.key)
    if digests is None:
        damaged += [_damage(None, (), error) for error in unreadable]
    return Verified(len(chosen), verifier.objects, verifier.bytes, tuple(damaged))


def _damage(digest: Digest | None, names: Iterable[str], error: CorruptError) -> Damage:
    return Damage(digest, tuple(sorted(names)), error.key, error.message.removeprefix(f"{error.key}: "))


class _Verifier:
    def __init__(self, store: Store, progress: Progress, jobs: int) -> None:
        self.store = store
        self.progress = progress
        self.jobs = jobs
        self.damaged: list[tuple[Digest, CorruptError]] = []
        self.objects = 0
        self.bytes = 0
        self._lock = threading.Lock()

    def verify(self, digest: Digest) -> None:
        try:
            _, manifest = read_manifest(self.store, digest)
        except CorruptError as error:
            self.damaged.append((digest, error))
            return
        except (DataError, NotFoundError) as error:
            self.damaged.append((digest, CorruptError(artifact_prefix(digest) + MANIFEST, error.message)))
            return
        present = listing(self.store, digest)
        for key in strays(manifest, present):
            self.damaged.append((digest, CorruptError(artifact_prefix(digest) + key, "not an object of this artifact")))
        # A part without any object was not pulled; one with some objects has to be complete.
        chosen = objects_of(manifest, begun_parts(self.store, digest, manifest, present))
        self.progress.start("verify", sum(entry.size for entry in chosen))
        each(chosen, lambda entry: self._hash(digest, entry), self.jobs)

    def _hash(self, digest: Digest, entry: Object) -> None:
        try:
            read_object(self.store, digest, entry)
        except CorruptError as error:
            with self._lock:
                self.damaged.append((digest, error))
        with self._lock:
            self.objects += 1
            self.bytes += entry.size
        self.progress.advance(entry.size)

"""What a garbage collection may delete, and what it checks before it believes that.

A store that answers wrongly (a proxy with an empty answer, a cache, a restored backup) makes names disappear, and
artifacts without a name are deleted. A lost name shows in one of these::

    no tag at all, and artifacts are there                          refused, unless told to trust the listing
    an entry that was listed before and is not now                  refused (maskreg.registry.garbage.names)
    an entry that this machine has seen, or its catalog knows       refused, unless told to trust the listing
    an artifact's back reference to an entry that is there          refused
      and is not listed
    an artifact's back reference to an entry that is not there      kept, unless told to trust the listing
    an artifact's back reference to a tag that cannot be read       kept; so is one without any, while a tag cannot be
    more than half of all artifacts, and more than 10, would go     refused, unless told to delete many
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

from maskreg.artifact.layout import ARTIFACTS, MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, NotFoundError, UsageError
from maskreg.progress import Progress, counting
from maskreg.ref import Ref
from maskreg.registry.garbage.names import Names
from maskreg.registry.index.searching import lost
from maskreg.registry.registry import Registry
from maskreg.result import Result
from maskreg.store.backrefs import NAMES, BackReference
from maskreg.store.base import ObjectInfo, Store
from maskreg.store.chain import looks, not_listed
from maskreg.store.entry import entry_key
from maskreg.words import counted

_WRITING = timedelta(hours=1)
"""Younger back references without an entry are left: their writer may be about to write it."""

MANY = 10
"""A run deletes up to this many artifacts without being told to delete many, or up to half of all."""


@dataclass(frozen=True)
class Collected(Result):
    """An artifact that was deleted, or would be.

    Attributes:
        digest: the artifact.
        objects: how many objects it had.
        bytes: their size.
        modified: when the newest of them was written, by the store's clock (aware, UTC).
        complete: whether it had a manifest; what has none is the rest of an interrupted push or collection.
        names: tags that pointed to it, as far as its back references tell.
    """

    digest: Digest
    objects: int
    bytes: int
    modified: datetime
    complete: bool = True
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """An artifact that may be deleted.

    Attributes:
        report: what it is, for people.
        listing: hash of the names, sizes and times of its objects: any change shows.
        references: keys of its back references.
    """

    report: Collected
    listing: bytes
    references: tuple[str, ...] = ()

    @property
    def digest(self) -> Digest:
        """The artifact."""
        return self.report.digest


@dataclass
class Plan:
    """All artifacts of a store, and what of them may go.

    Attributes:
        candidates: artifacts that may be deleted, by digest.
        artifacts: how many there are, candidates included.
        complete: how many of them have a manifest.
        kept: what is wrong with back references; their artifacts are kept.
    """

    candidates: dict[Digest, Candidate] = field(default_factory=dict)
    artifacts: int = 0
    complete: int = 0
    kept: list[CorruptError] = field(default_factory=list)

    @property
    def is_many(self) -> bool:
        """Whether more than half of all artifacts, and more than ``MANY``, would go."""
        return len(self.candidates) > max(MANY, self.artifacts / 2)

    def drop(self, digests: Collection[Digest]) -> None:
        """Keep these."""
        self.candidates = {digest: each for digest, each in self.candidates.items() if digest not in digests}


def find(store: Store, names: Names, deadline: datetime, progress: Progress) -> Plan:
    """Find the artifacts that no name points to and whose objects were all written before the deadline."""
    plan, named = Plan(), names.named()
    for digest, infos in counting(progress, "list artifacts", _artifacts(store)):
        plan.artifacts += 1
        candidate = examine(digest, infos)
        plan.complete += candidate.report.complete
        if candidate.report.modified <= deadline and digest not in named:
            plan.candidates[digest] = candidate
    return plan


def examine(digest: Digest, infos: Iterable[ObjectInfo]) -> Candidate:
    """Add up a listing of an artifact, which must not be empty, in key order."""
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


def check_listing(registry: Registry, names: Names, plan: Plan) -> None:
    """Refuse a listing of the log that has lost names, as far as this machine can tell."""
    if not plan.candidates:
        return
    if not len(names) and plan.complete:
        raise DataError(
            f"{registry.url} lists no name at all, and {counted(plan.complete, 'artifact', 'is')} there; "
            "nothing was deleted",
            gc_option="trust-listing --dry-run",
            remote=registry.remote_name,
        )
    missing: dict[Ref, CorruptError] = {}
    if (witness := registry.witness) is not None:
        witness.check_registry(registry.uuid)
        seen = witness.numbers(registry.uuid)
        missing = lost(names.latest(seen), seen, "was seen by this machine", registry.name)
    elif registry.root is not None and not registry.index.is_unmade():
        indexed = registry.index.use(lambda catalog: catalog.all_numbers()) or {}
        missing = lost(names.latest(indexed), indexed)
    for error in missing.values():
        if registry.store.head(error.key) is not None:
            raise not_listed(registry.store.url, error.key, "nothing was deleted")
        error.message += "; nothing was deleted"
        raise error


def check_amount(registry: Registry, plan: Plan) -> None:
    """Refuse to delete more than half of all artifacts at once."""
    if plan.is_many:
        raise UsageError(
            f"{len(plan.candidates):,} of {counted(plan.artifacts, 'artifact')} in {registry.url} would be "
            "deleted, more than half; nothing was deleted",
            hint="if they are to go",
            gc_option="yes-delete-many",
            remote=registry.remote_name,
        )


def check_references(registry: Registry, names: Names, plan: Plan, *, trust_listing: bool) -> None:
    """Take artifacts out of a plan that their back references keep, and write former names into the others."""
    young = registry.store.clock() - _WRITING
    for digest, candidate in list(plan.candidates.items()):
        keys, former, is_kept = [], set(), False
        for info in registry.store.list(f"{NAMES}{digest.hex}/"):
            if (reference := BackReference.of(info)) is None:
                continue
            keys.append(info.key)
            try:
                ref = _listed(registry, names, reference)
            except CorruptError as error:
                # The writer of a young one may be about to write its entry.
                if error.key == info.key or not trust_listing:
                    is_kept = True
                    plan.kept += [error] if error.key == info.key or info.modified <= names.deadline else []
                elif info.modified > young:
                    keys.pop()
                continue
            if ref in names.damaged:
                is_kept = True
            former.update([] if ref is None else [str(ref)])
        if is_kept or (names.damaged and not keys):
            del plan.candidates[digest]
            continue
        report = replace(candidate.report, names=tuple(sorted(former)))
        plan.candidates[digest] = replace(candidate, report=report, references=tuple(keys))


def _listed(registry: Registry, names: Names, reference: BackReference) -> Ref | None:
    """The tag of a back reference whose entry is listed; None when the back reference is gone by now."""
    store = registry.store
    for turn in looks():
        if turn:
            names.look()
        tag = names.by_hash(reference.tag)
        if tag is not None and tag[1] >= reference.n:
            return tag[0]
        try:
            ref = reference.read(store)
        except NotFoundError:
            return None
        key = entry_key(ref, reference.n)
        if store.head(key) is None:
            raise CorruptError(
                key,
                f"this entry of {ref} is not there, and was to name {reference.digest.short}: "
                "it was lost, or its writer stopped before it",
                hint="restore it from a copy, or let the artifact go",
                gc_option="trust-listing",
                remote=registry.remote_name,
            )
        # Written since the listing, or left out of it.
    raise not_listed(store.url, key, "nothing was deleted")


def _artifacts(store: Store) -> Iterator[tuple[Digest, Iterator[ObjectInfo]]]:
    for name, infos in groupby(store.list(ARTIFACTS), lambda info: info.key.split("/")[2]):
        try:
            yield Digest(f"sha256:{name}"), infos
        except ValueError:
            continue  # not an artifact

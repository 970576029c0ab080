"""Garbage collection: deletes artifacts without a name, and files that interrupted work left behind.

The protocol with push is described in :mod:`maskreg.registry.settle`. Collecting goes in batches::

    take over    lift the markers of collections that died
    look         list refs, read names
    find         artifacts that no live ref points to, and no link with one stands on; all objects older than the
                 grace period; nothing contradicts the listing
    announce     say what will go
    per batch    write a marker for each; list refs again
      per artifact   named now, or its listing changed?    spare it
                     otherwise                             delete the manifest, its back references, the objects,
                                                           then the marker

The manifest goes first: without it every reader takes the rest for an interrupted push. The marker stays until
everything is gone, even if the process dies, so that a push of the same artifact waits or sees the holes. A collection
that is killed has done what it deleted, and the next one begins anew.

All ages are by the store's clock: when an object was written, and when an entry was that took a name away. The times
that writers put into entries are for people.

**Doubts**: what a collection checks before it believes that an artifact can be deleted.

A store that answers wrongly (a proxy with an empty answer, a cache, a restored backup) makes names disappear, and
artifacts without a name are deleted. A lost name shows in one of these::

    no tag at all, and artifacts are there                          refused, unless told to trust the listing
    an entry that was listed before and is not now                  refused (maskreg.registry.names)
    an entry that this machine has seen, or its catalog knows       refused, unless told to trust the listing
    an artifact's back reference to an entry that is there          refused
      and is not listed
    an artifact's back reference to an entry that is not there      kept, unless told to trust the listing
    an artifact's back reference to a tag that cannot be read       kept; so is one without any, while a tag cannot be
    more than half of all artifacts, and more than 10, would go     refused, unless told to delete many
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby, islice

from maskreg.artifact.layout import ARTIFACTS, MANIFEST, artifact_prefix
from maskreg.artifact.presence import listing
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, MaskregError, NotFoundError, UsageError
from maskreg.progress import SILENT, Progress, counting
from maskreg.ref import Ref
from maskreg.registry.debris import LOCAL, SHARED, sweep
from maskreg.registry.names import Names
from maskreg.registry.registry import Registry
from maskreg.registry.searching import lost
from maskreg.registry.settle import CHUNK, Run, take_over
from maskreg.result import Result
from maskreg.store.base import ObjectInfo, Store
from maskreg.store.chain import looks, not_listed
from maskreg.store.entry import NAMES, BackReference, entry_key
from maskreg.words import counted

_WRITING = timedelta(hours=1)
"""Younger back references without an entry are left: their writer might be about to write it."""

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
    """An artifact that can be deleted; ``listing`` hashes names, sizes and times of its objects, so a change shows."""

    report: Collected
    listing: bytes
    references: tuple[str, ...] = ()

    @property
    def digest(self) -> Digest:
        """The artifact."""
        return self.report.digest


@dataclass
class Plan:
    """All artifacts of a store, and what of them can go."""

    candidates: dict[Digest, Candidate] = field(default_factory=dict)
    artifacts: int = 0  # candidates included
    complete: int = 0  # how many of them have a manifest
    kept: list[CorruptError] = field(default_factory=list)  # wrong back references, which keep their artifacts

    @property
    def is_many(self) -> bool:
        """Whether more than half of all artifacts, and more than ``MANY``, would go."""
        return len(self.candidates) > max(MANY, self.artifacts / 2)

    def drop(self, digests: Collection[Digest]) -> None:
        """Keep these."""
        self.candidates = {digest: each for digest, each in self.candidates.items() if digest not in digests}


def find(
    store: Store, names: Names, deadline: datetime, progress: Progress, only: Collection[Digest] | None = None
) -> Plan:
    """Find the artifacts, of these if given, that no name points to and that were all written before the deadline."""
    plan, named = Plan(), names.named()
    for digest, infos in counting(progress, "list artifacts", _artifacts(store, only)):
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


def known_numbers(registry: Registry) -> Mapping[Ref, int]:
    """Number of the latest entry of every tag that this machine knows of."""
    if (witness := registry.witness) is not None:
        witness.check_registry(registry.uuid)
        return witness.numbers(registry.uuid)
    # A local registry has no witness: its catalog knows what was there.
    is_indexed = registry.root is not None and not registry.index.is_unmade()
    return (registry.index.use(lambda catalog: catalog.all_numbers()) if is_indexed else None) or {}


def check_listing(registry: Registry, names: Names, plan: Plan, known: Mapping[Ref, int]) -> None:
    """Refuse a listing of the log that has lost names which were known before it."""
    if plan.candidates and not len(names) and plan.complete:
        raise DataError(
            f"{registry.url} lists no name at all, and {counted(plan.complete, 'artifact', 'is')} there; "
            "nothing was deleted",
            options={"trust_listing": True, "dry_run": True},
            remote=registry.remote_name,
        )
    how = ("was seen by this machine", registry.name) if registry.witness is not None else ()
    missing = lost(names.latest(known), known, *how)
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
            hint="allow it, if they are to go",
            options={"delete_many": True},
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
                # The writer of a young one might be about to write its entry.
                if error.key == info.key or not trust_listing:
                    is_kept = True
                    plan.kept += [error] if error.key == info.key or info.modified <= names.deadline else []
                elif info.modified > young:
                    keys.pop()
                continue
            if ref in names.damaged:
                is_kept = True
            former.update([] if ref is None else [str(ref)])
        # Without any reference, a tag that cannot be read can be the one that names it.
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
                options={"trust_listing": True},
                remote=registry.remote_name,
            )
        # Written since the listing, or left out of it.
    raise not_listed(store.url, key, "nothing was deleted")


def _artifacts(store: Store, only: Collection[Digest] | None) -> Iterator[tuple[Digest, Iterator[ObjectInfo]]]:
    listed = store.list(ARTIFACTS)
    if only is not None:
        listed = chain.from_iterable(store.list(artifact_prefix(digest)) for digest in sorted(only))
    for name, infos in groupby(listed, lambda info: info.key.split("/")[2]):
        try:
            yield Digest(f"sha256:{name}"), infos
        except ValueError:
            continue  # not an artifact


GRACE = timedelta(days=7)
"""How long garbage collection leaves artifacts alone that no name points to."""

_LONGEST_GRACE = timedelta(days=36_500)
"""Older than any artifact; longer periods would end before the first year that a date can have."""

_BATCH = 256
_LOOKS = 16


@dataclass(frozen=True)
class Garbage(Result):
    """What a garbage collection deleted, or would delete.

    Attributes:
        collected: artifacts that no name pointed to.
        spared: artifacts that were pushed, pulled or named during the collection.
        debris_files: files that interrupted work left in a store that is a directory.
        debris_bytes: their size.
        dry_run: nothing was deleted.
        damaged: tags whose latest entry cannot be read; the artifacts that they might name are kept.
        overtaken: artifacts of which this run deleted objects although it stood still for so long that others took it
            for dead; a client that pushed one of them meanwhile has to verify it.
        many: more than half of all artifacts and more than ten go, which a run has to be told to do.
    """

    collected: tuple[Collected, ...]
    spared: tuple[Digest, ...]
    debris_files: int
    debris_bytes: int
    dry_run: bool
    damaged: tuple[CorruptError, ...] = ()
    overtaken: tuple[Digest, ...] = ()
    many: bool = False

    @property
    def objects(self) -> int:
        """Stored objects of the collected artifacts."""
        return sum(item.objects for item in self.collected)

    @property
    def bytes(self) -> int:
        """Bytes of the collected artifacts and of the debris."""
        return sum(item.bytes for item in self.collected) + self.debris_bytes

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        return {**super().to_json(), "bytes": self.bytes}


def collect(
    registry: Registry,
    grace: timedelta = GRACE,
    *,
    dry_run: bool = False,
    trust_listing: bool = False,
    delete_many: bool = False,
    only: Collection[Digest] | None = None,
    announce: Callable[[Sequence[Collected]], object] | None = None,
    progress: Progress = SILENT,
) -> Garbage:
    """Delete artifacts that no live ref points to and that are older than the grace period, by the store's clock.

    What a named link stands on stays too, down to the first of its chain. The catalog is not consulted: the store is
    the truth.

    Args:
        registry: where to delete.
        grace: spare artifacts that were written, or lost their name, less than this ago.
        dry_run: only report.
        trust_listing: believe that no tag is there, or that entries are lost that are known.
        delete_many: delete more than half of all artifacts, if it comes to that.
        only: of these artifacts alone, and leave files of interrupted work alone.
        announce: is given what will be deleted, before anything is.
        progress: progress callback: tags and artifacts that were looked at, then deleted bytes.
    """
    registry.check_format()
    store = registry.store
    if not dry_run:
        take_over(store)
        if store.service is not None:
            # A client without the right to collect sees no candidates, and must not take that for an answer.
            with Run(store, registry.by):
                pass
    # Without a grace period ages are not compared: clocks differ, and buckets' clocks tick in whole seconds.
    deadline = store.clock() - min(grace, _LONGEST_GRACE) if grace else datetime.max.replace(tzinfo=UTC)
    names = Names(registry, deadline, progress)
    # First: what is written meanwhile is not missing.
    known = {} if trust_listing else known_numbers(registry)
    names.look()
    plan = find(store, names, deadline, progress, only)
    if not trust_listing:
        check_listing(registry, names, plan, known)
    found = set(plan.candidates)
    if plan.candidates:
        plan.drop(names.carried(names.named()))
        check_references(registry, names, plan, trust_listing=trust_listing or only is not None)
        # Again, for artifacts that back references have kept just now: what they stand on stays with them.
        plan.drop(names.carried(found - set(plan.candidates)))
    if announce is not None:
        announce([candidate.report for candidate in plan.candidates.values()])
    work = _Collection(registry, names, progress)
    if dry_run:
        work.collected = [candidate.report for candidate in plan.candidates.values()]
    else:
        if not delete_many:
            check_amount(registry, plan)
        work.collect_all(plan.candidates.values())
    files, size = _sweep(registry, grace, dry_run=dry_run) if only is None else (0, 0)
    deleted = {item.digest for item in work.collected}
    return Garbage(
        collected=tuple(work.collected),
        spared=tuple(digest for digest in plan.candidates if digest not in deleted),
        debris_files=files,
        debris_bytes=size,
        dry_run=dry_run,
        damaged=(*work.damaged.values(), *plan.kept),
        overtaken=tuple(work.overtaken),
        many=plan.is_many,
    )


class _Collection:
    # One run over several batches, and what it has done so far.

    def __init__(self, registry: Registry, names: Names, progress: Progress) -> None:
        self.registry = registry
        self.names = names
        self.damaged = names.damaged
        self.progress = progress
        self.collected: list[Collected] = []
        self.overtaken: list[Digest] = []

    def collect_all(self, candidates: Collection[Candidate]) -> None:
        rest = iter(candidates)
        # Before each batch everything is listed, which takes minutes where there are millions of entries.
        size = max(_BATCH, -(-len(candidates) // _LOOKS))
        try:
            while batch := list(islice(rest, size)):
                self._collect_batch(batch)
        except MaskregError as error:
            if self.collected:
                error.message += f"; {counted(len(self.collected), 'artifact')} had been deleted before that"
            raise

    def _collect_batch(self, batch: list[Candidate]) -> None:
        with Run(self.registry.store, self.registry.by) as run:
            for candidate in batch:
                if run.is_valid():
                    run.mark(candidate.digest)
            self.names.look()
            # An entry that became unreadable since the plan was made can name any of the candidates.
            if fresh := [error for ref, error in self.names.damaged.items() if ref not in self.damaged]:
                raise fresh[0]
            named = self.names.named()
            kept = named | self.names.carried(named)
            self.progress.start("delete", sum(candidate.report.bytes for candidate in batch))
            for candidate in batch:
                if candidate.digest not in kept and run.is_valid():
                    self._collect_one(run, candidate)

    def _collect_one(self, run: Run, candidate: Candidate) -> None:
        digest, report = candidate.digest, candidate.report
        objects = listing(self.registry.store, digest)
        if not objects or examine(digest, objects.values()).listing != candidate.listing:
            return
        if self._delete(run, candidate, objects):
            self.collected.append(report)
            self.registry.index.forget(digest, objects=report.objects, size=report.bytes, by=self.registry.by)
            self.progress.advance(report.bytes)

    def _delete(self, run: Run, candidate: Candidate, objects: Iterable[str]) -> bool:
        """Whether everything was deleted, and not only some while the run was valid."""
        digest = candidate.digest
        prefix = artifact_prefix(digest)
        keys = iter([*candidate.references, *(prefix + key for key in objects if key != MANIFEST)])
        chunk = [prefix + MANIFEST]
        with run.deleting(digest):
            while chunk:
                if not run.is_valid():
                    return False
                self.registry.store.delete(chunk)
                # A run that is late has done no harm while its marker stands: pushes of this artifact wait for it.
                if not run.is_valid() and not run.has_marked(digest):
                    self.overtaken.append(digest)
                    return False
                chunk = list(islice(keys, CHUNK))
        run.lift(digest)
        return True


def _sweep(registry: Registry, grace: timedelta, *, dry_run: bool) -> tuple[int, int]:
    if registry.root is not None:
        return sweep(registry.root, LOCAL, grace, dry_run=dry_run)
    if (files := registry.store.files) is not None:
        return sweep(files.root, SHARED, grace, dry_run=dry_run)
    return 0, 0

"""Garbage collection: deletes artifacts without a name, and files that interrupted work left behind.

The protocol with push is described in :mod:`maskreg.registry.settling.settle`. Collecting goes in batches::

    take over    lift the markers of collections that died
    look         list refs, read names
    find         artifacts that no live ref points to, and no link with one stands on; all objects older than the
                 grace period; nothing contradicts the listing           (maskreg.registry.garbage.candidates)
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
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.presence import listing
from maskreg.digest import Digest
from maskreg.errors import CorruptError, MaskregError
from maskreg.progress import SILENT, Progress
from maskreg.registry.garbage.candidates import (
    Candidate,
    Collected,
    check_amount,
    check_listing,
    check_references,
    examine,
    find,
)
from maskreg.registry.garbage.debris import LOCAL, SHARED, sweep
from maskreg.registry.garbage.names import Names
from maskreg.registry.registry import Registry
from maskreg.registry.settling.markers import CHUNK, Run, take_over
from maskreg.result import Result
from maskreg.words import counted

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
        damaged: tags whose latest entry cannot be read; the artifacts that they may name are kept.
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
    names.look()
    plan = find(store, names, deadline, progress)
    if only is not None:
        plan.candidates = {digest: candidate for digest, candidate in plan.candidates.items() if digest in only}
    if not trust_listing:
        check_listing(registry, names, plan)
    found = set(plan.candidates)
    if plan.candidates:
        plan.drop(names.carried(names.named()))
        check_references(registry, names, plan, trust_listing=trust_listing or only is not None)
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

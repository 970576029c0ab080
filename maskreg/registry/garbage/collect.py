"""Garbage collection: deletes artifacts without a name, and files that interrupted work left behind.

The protocol with push is described in :mod:`maskreg.registry.settling.settle`. Collecting goes in batches::

    take over    lift the markers of collections that died
    census       list refs twice: names of artifacts
    survey       artifacts without a live ref, and below no link with one; all objects older than the grace period
    doubts       can the listings be right, and may so much go?           (nothing is deleted otherwise)
    snapshot     write down the latest entry of every tag, where there are many
    announce     say what will go
    per batch    write a marker for each; list refs once more
      per artifact   named now, or its listing changed?    spare it
                     otherwise                             delete the manifest, then the objects, then its back
                                                           references, then the marker
    remember     how many tags and entries there were

The manifest goes first: without it every reader takes the rest for an interrupted push. The marker stays until
everything is gone, even if the process dies, so that a push of the same artifact waits or sees the holes.

A collection that is killed has done what it deleted, and the next one begins anew: it lifts the markers and lists the
log again. What it knows of names is in a temporary file, so that its memory grows with the garbage alone.

All ages are by the store's clock: when an object was written, and when an entry was that took a name away. The times
that writers put into entries are for people.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import islice

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.presence import listing
from maskreg.digest import Digest
from maskreg.errors import CorruptError, MaskregError
from maskreg.progress import SILENT, Progress
from maskreg.registry.garbage.census import Census
from maskreg.registry.garbage.debris import LOCAL, SHARED, sweep
from maskreg.registry.garbage.doubts import Witnesses, check_amount, check_clock, check_listing, is_many, remember
from maskreg.registry.garbage.report import Collected, Garbage
from maskreg.registry.garbage.standing import Kept
from maskreg.registry.garbage.survey import Candidate, examine, survey
from maskreg.registry.registry import Registry
from maskreg.registry.settling.markers import CHUNK, Run, take_over
from maskreg.store import FileStore
from maskreg.store.entry import ref_of
from maskreg.words import counted

GRACE = timedelta(days=7)
"""How long garbage collection leaves artifacts alone that no name points to."""

_LONGEST_GRACE = timedelta(days=36_500)
"""Older than any artifact; longer periods would end before the first year that a date can have."""

_BATCH = 256
_LOOKS = 16


def collect(
    registry: Registry,
    grace: timedelta = GRACE,
    *,
    dry_run: bool = False,
    trust_listing: bool = False,
    trust_clock: bool = False,
    delete_many: bool = False,
    only: Collection[Digest] | None = None,
    announce: Callable[[Sequence[Collected]], object] | None = None,
    progress: Progress = SILENT,
) -> Garbage:
    """Delete artifacts that no live ref points to and that are older than the grace period, by the store's clock.

    What a named link stands on stays too, down to the first of its chain.

    The catalog is not consulted: the store is the truth.

    Args:
        registry: where to delete.
        grace: spare artifacts that were written, or lost their name, less than this ago.
        dry_run: only report.
        trust_listing: believe that no tag is there, fewer than at the last collection, or without entries that are
            known.
        trust_clock: believe the store's clock though it may be ahead.
        delete_many: delete more than half of all artifacts, if it comes to that.
        only: of these artifacts alone, and leave files of interrupted work alone.
        announce: is given what will be deleted, before anything is.
        progress: progress callback: tags and artifacts that were looked at, then deleted bytes.

    Raises:
        ConfigError: the store's clock may be ahead.
        CorruptError: no entry of a tag can be read, so it may name any artifact; or an entry that is known is lost.
        DataError: the store lists no tag beside artifacts, or less than at the last collection.
        UnavailableError: the store's listings disagree with each other or with what can be read.
        UsageError: more than half of all artifacts, and more than ten, would go.
    """
    registry.check_format()
    store = registry.store
    if not dry_run:
        take_over(store)
    now = store.clock()
    # Without a grace period ages are not compared: clocks differ, and those of buckets tick in whole seconds.
    deadline = now - min(grace, _LONGEST_GRACE) if grace else datetime.max.replace(tzinfo=UTC)
    with Census(registry, deadline, progress) as census:
        census.look()
        census.look()
        damaged: list[CorruptError] = []
        snapshot = None if dry_run else census.new_snapshot()
        plan = survey(store, census.spares(damaged, snapshot), deadline, progress)
        unread = frozenset(ref_of(error.key) for error in damaged)
        if only is not None:
            plan.candidates = {digest: candidate for digest, candidate in plan.candidates.items() if digest in only}
        if not trust_listing:
            check_listing(registry, census, plan)
        # Without a grace period nothing goes because it is old.
        if grace and not trust_clock:
            check_clock(registry, census, plan, now)
        witnesses = Witnesses(census, unread, keeps_dangling=only is None and not trust_listing)
        witnesses.examine(plan, now)
        # Not before the listing was found to be right.
        if snapshot is not None:
            snapshot.finish(sorted(unread))
        if announce is not None:
            announce([candidate.report for candidate in plan.candidates.values()])
        work = _Collection(registry, census, damaged, progress)
        if dry_run:
            work.collected = [candidate.report for candidate in plan.candidates.values()]
        else:
            if not delete_many:
                check_amount(registry, plan)
            work.collect_all(plan.candidates.values())
            store.delete([r.info.key for r in plan.stale if store.head(artifact_prefix(r.digest) + MANIFEST) is None])
            remember(registry, census, plan.artifacts - len(work.collected))
        files, size = _sweep(registry, grace, dry_run=dry_run) if only is None else (0, 0)
        deleted = {item.digest for item in work.collected}
        return Garbage(
            collected=tuple(work.collected),
            spared=tuple(digest for digest in plan.candidates if digest not in deleted),
            debris_files=files,
            debris_bytes=size,
            dry_run=dry_run,
            damaged=(*damaged, *witnesses.damaged),
            overtaken=tuple(work.overtaken),
            many=is_many(plan),
        )


class _Deleted(Enum):
    ALL = "all"
    NOT_ALL = "the run was not valid any more"
    OVERTAKEN = "the same, and its marker was gone"


class _Collection:
    # One run over several batches, and what it has done so far.

    def __init__(self, registry: Registry, census: Census, damaged: list[CorruptError], progress: Progress) -> None:
        self.registry = registry
        self.census = census
        self.known = {error.key for error in damaged}
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
            self.census.look()
            damaged: list[CorruptError] = []
            self.census.read(damaged)
            if fresh := [error for error in damaged if error.key not in self.known]:
                raise fresh[0]
            kept = Kept(self.census.ledger, self.census.standing, with_lost=False)
            self.progress.start("delete", sum(candidate.report.bytes for candidate in batch))
            for candidate in batch:
                if not kept(candidate.digest) and run.is_valid():
                    self._collect_one(run, candidate)

    def _collect_one(self, run: Run, candidate: Candidate) -> None:
        digest = candidate.digest
        objects = listing(self.registry.store, digest)
        if not objects or examine(digest, objects.values()).listing != candidate.listing:
            return
        result = self._delete(run, candidate, objects)
        if result is _Deleted.ALL:
            report = candidate.report
            self.collected.append(report)
            self.registry.index.forget(digest, objects=report.objects, size=report.bytes, by=self.registry.by)
            self.progress.advance(report.bytes)
        elif result is _Deleted.OVERTAKEN:
            self.overtaken.append(digest)

    def _delete(self, run: Run, candidate: Candidate, objects: Iterable[str]) -> _Deleted:
        digest = candidate.digest
        prefix = artifact_prefix(digest)
        keys = iter([prefix + key for key in objects if key != MANIFEST])
        chunk = [prefix + MANIFEST]
        with run.deleting(digest):
            while chunk:
                if not run.is_valid():
                    return _Deleted.NOT_ALL
                self.registry.store.delete(chunk)
                if not run.is_valid() and not run.has_marked(digest):
                    return _Deleted.OVERTAKEN
                chunk = list(islice(keys, CHUNK))
            self.registry.store.delete([reference.info.key for reference in candidate.references])
        run.lift(digest)
        return _Deleted.ALL


def _sweep(registry: Registry, grace: timedelta, *, dry_run: bool) -> tuple[int, int]:
    if registry.root is not None:
        return sweep(registry.root, LOCAL, grace, dry_run=dry_run)
    if isinstance(registry.store, FileStore):
        return sweep(registry.store.root, SHARED, grace, dry_run=dry_run)
    return 0, 0

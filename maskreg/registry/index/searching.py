"""Searching an index, and holding what it answers against the store.

Of a small index every name is compared with one listing of the log. A large one follows the journal, and of what it
answers only the results are held against what this machine has seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from maskreg.artifact.presence import read_manifest
from maskreg.catalog import Answer, Catalog, Query, Searchable, SearchResult, Snapshot
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, MaskregError, NotAllowedError, NotFoundError
from maskreg.ref import Ref
from maskreg.registry.index.following import follow
from maskreg.registry.index.freshness import behind, catch_up, lost
from maskreg.registry.index.results import LeftOut, Search, without
from maskreg.store.base import Store
from maskreg.store.entry import ref_of
from maskreg.store.journal import lagging
from maskreg.store.reflog import RefLog


@dataclass(frozen=True)
class Searcher:
    """What a search is held against.

    Attributes:
        log: the log of the registry.
        store: where that and the artifacts are.
        seen: number of the latest entry that this machine has seen of each tag.
        seen_on: name of the remote where it has seen them.
    """

    log: RefLog
    store: Store
    seen: Mapping[Ref, int]
    seen_on: str

    def search(self, catalog: Catalog, query: Query) -> Search:
        """Search a catalog, after bringing it up to date.

        Raises:
            UsageError: the query is malformed.
            MaskregError: the catalog or the store cannot be used.
        """
        answer = catalog.answer(query)
        if answer.numbers is not None:
            return self._compared(catalog, query, answer, self.log.numbers())
        if not catalog.keeps_up and follow(catalog, self.log, self.store):
            answer = catalog.answer(query)
        left_out = tuple(self._unread(catalog, answer.unread))
        return without(Search(tuple(answer.results), left_out), self._lost(catalog, answer.results))

    def search_snapshot(self, snapshot: Snapshot, query: Query) -> Search:
        """Search what was just read from the log: another listing may show what that one lacked.

        Raises:
            UsageError: the query is malformed.
        """
        answer = snapshot.answer(query)
        return self._compared(snapshot, query, answer, answer.numbers or {})

    def _compared(self, catalog: Searchable, query: Query, answer: Answer, log: Mapping[Ref, int]) -> Search:
        # A catalog that follows the log may be behind it, or know what it has lost; so may what this machine remembers.
        indexed = answer.numbers or {}
        damaged = lost(log, self.seen, "was seen by this machine", self.seen_on) | lost(log, indexed)
        if not catalog.keeps_up and catch_up(catalog, self.log.head, behind(log, indexed)):
            answer = catalog.answer(query)
        left_out = [*self._unread(catalog, answer.unread), *self._unindexed(catalog, answer)]
        if len(left_out) < len(answer.unread) + len(answer.unindexed):
            # What was damaged or missing is there now, and has been indexed.
            answer = catalog.answer(query)
        return without(Search(tuple(answer.results), tuple(left_out)), damaged)

    def _lost(self, catalog: Catalog, results: Iterable[SearchResult]) -> dict[Ref, CorruptError]:
        # Those of some results of which this machine has seen a later entry than the log has.
        known = {ref: self.seen[ref] for ref in (result.ref for result in results) if ref in self.seen}
        damaged: dict[Ref, CorruptError] = {}
        for ref in lagging(known, catalog.numbers(known)):
            head = self.log.head(ref)
            damaged |= lost({ref: head.n if head else 0}, {ref: known[ref]}, "was seen by this machine", self.seen_on)
        return damaged

    def _unread(self, catalog: Searchable, unread: Iterable[str]) -> Iterator[LeftOut]:
        for key in unread:
            ref = ref_of(key)
            try:
                head = self.log.head(ref)
            except DataError as error:
                yield LeftOut(str(ref), None, error)
                continue
            if head is None:
                yield LeftOut(str(ref), None, CorruptError(key, "gone since the catalog was filled", indexed=True))
            elif not catalog.keeps_up:
                catalog.put_ref(head)

    def _unindexed(self, catalog: Searchable, answer: Answer) -> Iterator[LeftOut]:
        reasons: dict[Digest, MaskregError] = {}
        for digest in sorted({digest for _, digest in answer.unindexed}):
            try:
                manifest = read_manifest(self.store, digest)[1]
                if not catalog.keeps_up:
                    catalog.put_artifact(digest, manifest)
            except (DataError, NotFoundError, NotAllowedError) as error:
                reasons[digest] = error
        for ref, digest in answer.unindexed:
            if digest in reasons:
                reasons[digest].facts.setdefault("ref", ref)
                yield LeftOut(str(ref), digest, reasons[digest])

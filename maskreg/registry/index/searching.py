"""Searching an index, and holding what it answers against the store.

Of a small index every name is compared with one listing of the log::

    number of a tag's latest entry    in the log   in the catalog
    the same                               4             4          nothing to do
    the catalog is behind                  4             3, none    a writer died, or could not reach it: index entry 4
    the log is behind                  3, none           4          entry 4 was lost, or an older copy put back: damage

A large one follows the journal of the store (:mod:`maskreg.store.journal`), and of what it answers only the results are
held against what this machine has seen::

    position    the generation of the journal up to which the index took in what moved, which it keeps itself
    start       the latest whole generation, where it can go on the next time
    changes     tags that moved in the generations since its position; of a generation that is gone, all tags
    catch up    read the latest entry of the tags that the index does not know, and the manifests that they name
    advance     begin another generation when there are many changes
    follow      the position is ``start`` now
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from maskreg.artifact.presence import read_manifest
from maskreg.catalog import Answer, Query, SearchResult
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, MaskregError, NotAllowedError, NotFoundError
from maskreg.ref import Ref
from maskreg.registry.index.manifests import readable_manifests
from maskreg.result import Result, plain
from maskreg.store.base import Store
from maskreg.store.entry import entry_key, ref_of
from maskreg.store.journal import LONG, lagging
from maskreg.store.reflog import RefEntry, RefLog

if TYPE_CHECKING:
    from maskreg.catalog.catalog import Catalog


@dataclass(frozen=True)
class LeftOut(Result):
    """A name that a listing cannot describe.

    Attributes:
        ref: the name.
        digest: the artifact that it points to; None when its entry in the ref log cannot be read.
        error: what is damaged or missing.
    """

    ref: str
    digest: Digest | None
    error: MaskregError

    @property
    def reason(self) -> str:
        """What is damaged or missing, as a sentence."""
        return self.error.message

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints."""
        error = self.error.to_json()
        return {"ref": self.ref, "digest": plain(self.digest), "reason": error.pop("message"), **error}


@dataclass(frozen=True)
class Search:
    """What a search found, and what it could not look at.

    Attributes:
        results: live refs that match, in the query's order.
        left_out: names that may match or not, because what describes them cannot be read; in their order.
    """

    results: tuple[SearchResult, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class Rebuilt(Result):
    """A catalog that was recreated from the store.

    Attributes:
        refs: tags in it.
        artifacts: artifacts in it.
        damaged: what could not be read in the store, and was left out.
        damaged_catalog: where the damaged file of the catalog is now, with the measurements and events that only it
            held; empty when it was rebuilt in place.
    """

    refs: int
    artifacts: int
    damaged: tuple[MaskregError, ...]
    damaged_catalog: str = ""


def without(search: Search, damaged: Mapping[Ref, CorruptError]) -> Search:
    """A search whose results do not hold these refs, with the reason; what it left out is in order."""
    results = tuple(row for row in search.results if Ref(row.project, row.name, row.tag) not in damaged)
    left_out = {str(ref): LeftOut(str(ref), None, error) for ref, error in damaged.items()}
    # Damage that was read says more than what is missing.
    left_out |= {name.ref: name for name in search.left_out}
    return Search(results, tuple(left_out[ref] for ref in sorted(left_out)))


def behind(log: Mapping[Ref, int], catalog: Mapping[Ref, int]) -> list[Ref]:
    """Tags of which the log has entries that the catalog does not know, in the order of their names."""
    return sorted((ref for ref, n in log.items() if n > catalog.get(ref, 0)), key=str)


def lost(
    log: Mapping[Ref, int],
    known: Mapping[Ref, int],
    memory: str = "is in the catalog",
    seen_on: str | None = None,
) -> dict[Ref, CorruptError]:
    """Tags of which an entry is known that the log has no more, and the damage.

    Args:
        log: number of the latest entry of each tag in the store.
        known: the same in the catalog, or in what this machine remembers.
        memory: how the entry is known, for the message.
        seen_on: name of the remote where this machine has seen the entries; None for entries of the catalog.
    """
    return {
        ref: CorruptError(
            entry_key(ref, n),
            f"entry {n} of {ref} {memory}, and is missing from the store"
            + (f", whose latest is entry {log[ref]}" if log.get(ref) else ""),
            hint="restore it from a copy; or accept the loss" if seen_on is None else "",
            ref=ref,
            **({"indexed": True} if seen_on is None else {"seen": True, "remote": seen_on}),
        )
        for ref, n in sorted(known.items(), key=lambda item: str(item[0]))
        if n > log.get(ref, 0)
    }


def catch_up(catalog: Catalog, latest: Callable[[Ref], RefEntry | None], tags: list[Ref]) -> bool:
    """Index the latest entries of these tags; whether any was. Those that cannot be read are left as they are.

    Args:
        catalog: the index.
        latest: reads the latest entry of a tag; None when there is none.
        tags: of which the catalog is behind.
    """
    changed = False
    for ref in tags:
        try:
            head = latest(ref)
        except DataError:
            continue
        if head is not None:
            catalog.put_ref(head)
            changed = True
    return changed


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
        """Search a catalog, after bringing it up to date."""
        answer = catalog.answer(query)
        if answer.numbers is not None:
            strays: list[CorruptError] = []
            found = self._compared(catalog, query, answer, self.log.numbers(strays))
            return without(found, {ref_of(error.key): error for error in strays})
        if follow(catalog, self.log, self.store):
            answer = catalog.answer(query)
        left_out = tuple(self._unread(catalog, answer.unread))
        return without(Search(tuple(answer.results), left_out), self._lost(catalog, answer.results))

    def search_in_memory(self, catalog: Catalog, query: Query) -> Search:
        """Search what was just read from the log: another listing may show what that one lacked."""
        answer = catalog.answer(query)
        answer = answer._replace(numbers=catalog.all_numbers())
        return self._compared(catalog, query, answer, answer.numbers or {})

    def _compared(self, catalog: Catalog, query: Query, answer: Answer, log: Mapping[Ref, int]) -> Search:
        # A catalog that follows the log may be behind it, or know what it has lost; so may what this machine remembers.
        indexed = answer.numbers or {}
        damaged = lost(log, self.seen, "was seen by this machine", self.seen_on) | lost(log, indexed)
        if catch_up(catalog, self.log.head, behind(log, indexed)):
            answer = catalog.answer(query)
        left_out = [*self._unread(catalog, answer.unread), *self._unindexed(catalog, answer)]
        if len(left_out) < len(answer.unread) + len(answer.unindexed):
            # What was damaged or missing is there now, and has been indexed.
            answer = catalog.answer(query)
        return without(Search(tuple(answer.results), tuple(left_out)), damaged)

    def _lost(self, catalog: Catalog, results: Iterable[SearchResult]) -> dict[Ref, CorruptError]:
        # Results of which this machine has seen a later entry than the log has.
        known = {ref: self.seen[ref] for ref in (result.ref for result in results) if ref in self.seen}
        damaged: dict[Ref, CorruptError] = {}
        for ref in lagging(known, catalog.numbers(known)):
            head = self.log.head(ref)
            damaged |= lost({ref: head.n if head else 0}, {ref: known[ref]}, "was seen by this machine", self.seen_on)
        return damaged

    def _unread(self, catalog: Catalog, unread: Iterable[str]) -> Iterator[LeftOut]:
        for key in unread:
            ref = ref_of(key)
            try:
                head = self.log.head(ref)
            except DataError as error:
                yield LeftOut(str(ref), None, error)
                continue
            if head is None:
                yield LeftOut(str(ref), None, CorruptError(key, "gone since the catalog was filled", indexed=True))
            else:
                catalog.put_ref(head)

    def _unindexed(self, catalog: Catalog, answer: Answer) -> Iterator[LeftOut]:
        reasons: dict[Digest, MaskregError] = {}
        for digest in sorted({digest for _, digest in answer.unindexed}):
            try:
                manifest = read_manifest(self.store, digest)[1]
                catalog.put_artifact(digest, manifest)
            except (DataError, NotFoundError, NotAllowedError) as error:
                reasons[digest] = error
        for ref, digest in answer.unindexed:
            if digest in reasons:
                reasons[digest].facts.setdefault("ref", ref)
                yield LeftOut(str(ref), digest, reasons[digest])


_BATCH = 1_000


def follow(catalog: Catalog, log: RefLog, store: Store) -> bool:
    """Take into the index what moved since it was last followed; whether anything did.

    Args:
        catalog: the index.
        log: the log that it is an index of.
        store: where that and the artifacts are.
    """
    position = catalog.followed()
    start = log.journal.start()
    changes = None if position is None else log.journal.since(position)
    changed = False
    for batch in _batches(log.each_number() if changes is None else changes.items()):
        known = catalog.numbers(batch)
        for ref in lagging(batch, known):
            with suppress(DataError):  # verify says what is wrong with it
                changed = _take_in(catalog, store, log.head(ref)) or changed
    if start != position:
        catalog.follow(start)
    if changes is not None and len(changes) >= LONG:
        known = catalog.numbers(changes)
        with suppress(NotAllowedError):  # a reader without write access leaves it to others
            log.journal.advance(lambda ref, n: known.get(ref, 0) >= n or log.has(ref, n))
    return changed


def _take_in(catalog: Catalog, store: Store, head: RefEntry | None) -> bool:
    if head is None:
        return False
    if head.digest is not None and not catalog.has(head.digest):
        for digest, manifest in readable_manifests(store, [head.digest], []):
            catalog.put_artifact(digest, manifest)
    catalog.put_ref(head)
    return True


def _batches(numbers: Iterable[tuple[Ref, int]]) -> Iterator[dict[Ref, int]]:
    rest = iter(numbers)
    while batch := dict(islice(rest, _BATCH)):
        yield batch

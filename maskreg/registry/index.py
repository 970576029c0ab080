"""The catalog of a registry: opened on first use, filled from the store, and never needed to work."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from maskreg import errors
from maskreg.catalog import Answer, Event, Query, SearchResult, open_catalog
from maskreg.catalog.file import Put, read, write
from maskreg.catalog.query import Counts, Measurement
from maskreg.catalog.rows import artifact_row, record_row, ref_row
from maskreg.digest import Digest
from maskreg.progress import SILENT, Progress, counting
from maskreg.ref import Ref
from maskreg.registry.searching import LeftOut, Rebuilt, Search, digests_in, lost, readable_manifests, without
from maskreg.store.base import Store
from maskreg.store.entry import ref_of
from maskreg.store.reflog import RefEntry, RefLog

if TYPE_CHECKING:
    from maskreg.catalog.catalog import Catalog

T = TypeVar("T")

RETRY_S = 1.0
"""How long a catalog or a store that did not answer is left alone, in seconds."""


class Index:
    """The catalog of one store, or its absence.

    The store holds the truth, so a catalog that cannot be opened or written is not an error: the reason is kept in
    ``problem``, and searching reads the store instead. A catalog that was not filled from this store (a new one, or
    one whose filling broke off) is filled when it is opened. A damaged one is left to ``maskreg db rebuild``.

    Attributes:
        url: the catalog's SQLAlchemy URL; empty when the registry has none.
        problem: why the catalog is unusable or behind the store; None when it is neither, as far as is known.
    """

    def __init__(
        self, url: str, store: Store, uuid: Callable[[], str], check: Callable[[RefEntry], None] | None = None
    ) -> None:
        """Name the catalog; nothing is opened yet."""
        self.url = url
        self.problem: errors.MaskregError | None = None
        self._failed_s = 0.0
        self._store = store
        self._refs = RefLog(store, check=check)
        self._uuid = uuid
        self._opened: Catalog | None = None
        # The file of a local catalog, which is read and written without SQLAlchemy.
        self._file = Path(url.removeprefix(_LOCAL)) if url.startswith(_LOCAL) else None

    def must_open(self) -> Catalog:
        """The catalog, filled."""
        return self._or_raise(self.open())

    def use(self, work: Callable[[Catalog], T]) -> T | None:
        """Do something with the catalog; None where it cannot be used, which ``problem`` tells."""
        if (catalog := self.open()) is not None:
            with self._reporting():
                return work(catalog)
        return None

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except errors.UsageError:
            raise
        except errors.MaskregError as error:
            self.problem = error

    def search(
        self,
        query: Query,
        seen: Mapping[Ref, int] = MappingProxyType({}),
        seen_on: str = "",
        *,
        read_entries: bool = False,
    ) -> Search:
        """Live refs that match, from the catalog or, where that is not usable, from the store.

        Args:
            query: what is asked.
            seen: number of the latest entry that this machine has seen of each tag.
            seen_on: name of the remote where it has seen them.
            read_entries: read the latest entry of every tag too, which finds damage that no listing shows.
        """
        forgotten = partial(lost, known=seen, memory="was seen by this machine", seen_on=seen_on)
        unread: list[errors.CorruptError] = []
        found: Search | None = None
        if not self.is_unmade() and (catalog := self.open()) is not None:
            with self._reporting():
                # The catalog first: what is written meanwhile is behind then, and not lost.
                answer = catalog.answer(query)
                numbers = self._refs.numbers(unread)
                found = self._compared(catalog, query, answer, numbers, forgotten(numbers))
        if found is not None and read_entries:
            deque(self._refs.heads(unread), maxlen=0)
        if found is None:
            unread.clear()
            with self._in_memory(unread) as catalog:
                answer = catalog.answer(query)
                # Another listing might show what the one that was read lacked, so there is none.
                found = self._compared(catalog, query, answer, answer.numbers, forgotten(answer.numbers))
        return without(found, {ref_of(error.key): error for error in unread})

    def _compared(
        self,
        catalog: Catalog,
        query: Query,
        answer: Answer,
        log: Mapping[Ref, int],
        known: Mapping[Ref, errors.CorruptError],
    ) -> Search:
        # A catalog can be behind the log, or know what it has lost.
        damaged: dict[Ref, errors.DataError] = {**known, **lost(log, answer.numbers)}
        if late := sorted((ref for ref, n in log.items() if n > answer.numbers.get(ref, 0)), key=str):
            for ref in late:
                try:
                    if (head := self._refs.head(ref)) is not None:
                        catalog.put_ref(head)
                except errors.DataError as error:
                    damaged[ref] = error
            answer = catalog.answer(query)
        left_out = list(self._unindexed(catalog, answer))
        if len(left_out) < len(answer.unindexed):
            # What was damaged or missing is there now, and has been indexed.
            answer = catalog.answer(query)
        return without(Search(tuple(answer.results), tuple(left_out)), damaged)

    def _unindexed(self, catalog: Catalog, answer: Answer) -> Iterator[LeftOut]:
        reasons: dict[Digest, errors.MaskregError] = {}
        if answer.unindexed:
            from maskreg.artifact.presence import read_manifest  # a list that misses nothing starts without it
        for digest in sorted({digest for _, digest in answer.unindexed}):
            try:
                manifest = read_manifest(self._store, digest)[1]
                catalog.put_artifact(digest, manifest)
            except (errors.DataError, errors.NotFoundError, errors.NotAllowedError) as error:
                reasons[digest] = error
        for ref, digest in answer.unindexed:
            if digest in reasons:
                reasons[digest].facts.setdefault("ref", ref)
                yield LeftOut(str(ref), digest, reasons[digest])

    def page(self, query: Query) -> list[SearchResult]:
        """Results alone, as the catalog has them now; from the store where there is no catalog.

        Unlike :meth:`search` this does not ask the store what the catalog might lack, so that it costs no more for a
        large registry. :meth:`search` brings the catalog up to date.
        """
        return self._asked(lambda catalog: catalog.search(query))

    def counts(self, query: Query, keys: Collection[str]) -> Counts:
        """How many names match, by value of these filters, as :meth:`page` has them."""
        return self._asked(lambda catalog: catalog.counts(query, keys))

    def _asked(self, work: Callable[[Catalog], T]) -> T:
        if not self.url or self.is_unmade():
            with self._in_memory([]) as catalog:
                return work(catalog)
        found = self.use(work)
        if found is None:
            raise self.problem or errors.NotFoundError("this registry has no catalog")
        return found

    def number(self, ref: Ref) -> int:
        """Number of the entry of a tag that a local catalog knows; 0 when there is none, or no usable catalog.

        Nothing is filled or repaired: this only looks.
        """
        rows = "SELECT n FROM refs, filled WHERE source = ? AND project = ? AND name = ? AND tag = ?"
        found = self._read(rows, self._uuid(), ref.project, ref.name, ref.tag)
        return found[0][0] if found and isinstance(found[0][0], int) else 0

    def overlaps(self, digest: Digest) -> dict[str, Measurement]:
        """The latest recorded overlaps of a whole mask, by metric; empty when the catalog cannot be used."""
        # A catalog that cannot be asked so is opened, which says what is wrong with it.
        if self._read("SELECT 1 FROM measurements WHERE digest = ? LIMIT 1", digest) == []:
            return {}
        measured = self.use(lambda catalog: catalog.measurements(digest)) or []
        return {each.metric: each for each in measured if not each.by_group}

    def saw_source(self, root: str, path: str) -> None:
        """Remember that the checkpoint of identity ``root`` is at ``path`` now."""
        if self.seen_sources(root)[:1] == [path]:
            return  # readers, such as a comparison, say so every time
        row = {"root": root, "path": path, "at": datetime.now(UTC)}
        if self._file is None or not write(self._file, [Put("seen_sources", row, ("root", "path"))]):
            self.use(lambda catalog: catalog.saw_source(root, path))

    def seen_sources(self, root: str) -> list[str]:
        """Paths where the checkpoint of identity ``root`` was seen, the latest first."""
        rows = self._read("SELECT path FROM seen_sources WHERE root = ? ORDER BY at DESC, id DESC", root)
        return [path for (path,) in rows or ()]

    def _read(self, statement: str, *values: str) -> list[tuple[Any, ...]] | None:
        return None if self._file is None else read(self._file, statement, values)

    def is_unmade(self) -> bool:
        """Whether a local catalog is still to be made, and has nothing to hold yet: then looking does not make it."""
        return self._file is not None and not self._file.exists() and not any(self._refs.tags())

    def note(self, entry: RefEntry, action: str) -> None:
        """Index an entry of the ref log and the artifact it points to, and log the event."""
        event = Event(action, str(entry.ref), entry.by, {"digest": entry.digest or "", "n": entry.n})
        if self._file is not None and self._noted_in(self._file, entry, event):
            return

        def write(catalog: Catalog) -> None:
            if entry.digest is not None and not catalog.has(entry.digest):
                # An unreadable manifest keeps its name; search skips it with a warning.
                for digest, manifest in readable_manifests(self._store, [entry.digest], []):
                    catalog.put_artifact(digest, manifest)
            catalog.put_ref(entry)
            catalog.log(event)

        self.use(write)

    def _noted_in(self, file: Path, entry: RefEntry, event: Event) -> bool:
        """Note an entry in a local catalog that is filled, whole, and has no overlap of the artifact to restore."""
        state = (
            "SELECT source, EXISTS (SELECT 1 FROM artifacts WHERE digest = ?),"
            " EXISTS (SELECT 1 FROM measurements WHERE digest = ?) FROM filled"
        )
        digest = entry.digest
        found = read(file, state, (digest or "", digest or ""))
        if not found or found[0][0] != self._uuid() or found[0][1:] == (0, 1):
            return False
        rows = [
            Put("refs", ref_row(entry), ("project", "name", "tag"), "excluded.n >= refs.n"),
            Put("events", record_row(event)),
        ]
        if digest is not None and not found[0][1]:
            try:
                # An unreadable manifest keeps its name; search skips it with a warning.
                manifests = list(readable_manifests(self._store, [digest], []))
            except errors.MaskregError as error:
                self.problem = error
                return True
            rows += [Put("artifacts", artifact_row(*each), ("digest",)) for each in manifests]
        return write(file, rows)

    def forget(self, digest: Digest, *, objects: int, size: int, by: str) -> None:
        """Remove a deleted artifact from the index, and log the event."""

        def write(catalog: Catalog) -> None:
            catalog.drop_artifact(digest)
            catalog.log(Event("gc", digest, by, {"objects": objects, "bytes": size}))

        self.use(write)

    def rebuild(self, *, progress: Progress = SILENT) -> Rebuilt:
        """Recreate the index from the store; measurements, events and seen sources stay.

        A damaged SQLite file is renamed, and a new one takes its place.
        """
        self.close()
        try:
            catalog = self._or_raise(self.open(fill=False))
            catalog.check()
            return self._fill(catalog, progress=progress)
        except errors.CorruptError as error:
            damage = error
        self.close()
        # Here, not above: SQLAlchemy is imported where a catalog is opened.
        from maskreg.catalog.catalog import move_damaged

        if (moved := move_damaged(self.url)) is None:
            raise damage
        filled = self._fill(self._or_raise(self.open(fill=False)), progress=progress)
        return replace(filled, damaged_catalog=str(moved))

    def find_damage(self) -> list[errors.MaskregError]:
        """What is wrong with the catalog's file or its database, or which entries it knows that the store has lost."""
        self.close()
        if self.is_unmade() or (catalog := self.open(fill=False)) is None:
            return [] if self.problem is None else [self.problem]
        try:
            catalog.check()
            # The catalog first: what is written meanwhile is behind then, and not lost.
            known = catalog.all_numbers() if catalog.filled_from() == self._uuid() else {}
            return list(lost(self._refs.numbers([]), known).values())
        except errors.MaskregError as error:
            return [error]
        finally:
            self.close()

    def close(self) -> None:
        """Close the catalog's connections and forget its problems."""
        if self._opened is not None:
            self._opened.close()
        self._opened, self.problem = None, None

    # Opening and filling

    def open(self, *, fill: bool = True) -> Catalog | None:
        """The catalog, filled, and made if it is missing; None when there is none or it is unusable (``problem``)."""
        has_passed = isinstance(self.problem, errors.UnavailableError) and time.monotonic() - self._failed_s > RETRY_S
        if self._opened is None and self.url and (self.problem is None or has_passed):
            opened = self.problem = None
            try:
                opened = open_catalog(self.url)
                if fill:
                    filled, uuid = opened.filled_from(), self._uuid()
                    # A registry that nothing was ever written to has nothing to fill it with.
                    if filled != uuid and (filled is not None or uuid or any(self._refs.tags())):
                        self._fill(opened)
                self._opened = opened
            except errors.MaskregError as error:
                self.problem, self._failed_s = error, time.monotonic()
            finally:
                if opened is not None and self._opened is None:
                    opened.close()
        return self._opened

    def _or_raise(self, opened: Catalog | None) -> Catalog:
        if opened is None:
            raise self.problem or errors.NotFoundError("this registry has no catalog")
        return opened

    def _fill(self, catalog: Catalog, *, progress: Progress = SILENT) -> Rebuilt:
        damaged: list[errors.MaskregError] = []
        unread: list[errors.CorruptError] = []
        entries = counting(progress, "read tags", self._refs.heads(unread))
        manifests = readable_manifests(self._store, digests_in(self._store), damaged)
        manifests = counting(progress, "read manifests", manifests)
        refs, artifacts = catalog.rebuild(entries, manifests, registry=self._uuid())
        return Rebuilt(refs, artifacts, (*unread, *damaged))

    def _in_memory(self, unread: list[errors.CorruptError]) -> Catalog:
        # Of everything that has or had a name.
        entries = list(self._refs.heads(unread))
        digests = sorted({entry.digest for entry in entries if entry.digest})
        catalog = open_catalog("sqlite://")
        catalog.rebuild(entries, readable_manifests(self._store, digests, []))
        return catalog


_LOCAL = "sqlite:///"

"""The catalog of a registry: opened on first use, filled from the store, and never needed to work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from maskreg.catalog import (
    Catalog,
    Event,
    Query,
    SearchResult,
    Snapshot,
    open_catalog,
    repairing,
    set_aside,
)
from maskreg.digest import Digest
from maskreg.errors import ConfigError, CorruptError, MaskregError, NotFoundError, UsageError
from maskreg.progress import SILENT, Progress, counting
from maskreg.ref import Ref
from maskreg.registry.index.manifests import digests_in, readable_manifests
from maskreg.registry.index.searching import Rebuilt, Search, Searcher, behind
from maskreg.store.base import Store
from maskreg.store.entry import ref_of
from maskreg.store.probe import probe
from maskreg.store.reflog import RefEntry, RefLog
from maskreg.words import counted

T = TypeVar("T")


class Index:
    """The catalog of one store, or its absence.

    The store holds the truth, so a catalog that cannot be opened or written is not an error: the reason is kept in
    ``problem``, and searching reads the store instead. A catalog that was not filled from this store (a new one, or
    one whose filling broke off) is filled when it is opened. A local one that turns out to be damaged is rebuilt from
    the store, at once and once::

        open, search, read or write -> the catalog's own CorruptError
            lock                      other processes wait, and then find it repaired
            check everything again    repaired meanwhile? use it
            rebuild                   in place; a file that SQLite cannot trust is set aside first
            remark                    what was damaged, and what was lost with it
            do it again               damaged again: read the store

    Attributes:
        url: the catalog's SQLAlchemy URL; empty when the registry has none.
        problem: why the catalog is unusable or behind the store; None when it is neither, as far as is known.
        remarks: repairs that were made, one sentence each.
    """

    def __init__(
        self, url: str, store: Store, uuid: Callable[[], str], check: Callable[[RefEntry], None] | None = None
    ) -> None:
        """Name the catalog; nothing is opened yet."""
        self.url = url
        self.problem: MaskregError | None = None
        self.remarks: list[str] = []
        self._store = store
        self._refs = RefLog(store, check=check)
        self._uuid = uuid
        self._opened: Catalog | None = None

    def open(self) -> Catalog | None:
        """The catalog, filled, and made if it is missing; None when there is none or it is unusable (``problem``)."""
        opened = self._open(self._fill_if_new)
        if opened is None and self.problem is not None and self._repair(self.problem):
            opened = self._open(self._fill_if_new)
        return opened

    def must_open(self) -> Catalog:
        """The catalog, filled."""
        return self._or_raise(self.open())

    def use(self, work: Callable[[Catalog], T]) -> T | None:
        """Do something with the catalog, after a repair if it is damaged.

        Returns:
            What ``work`` returns; None when the catalog cannot be used (see ``problem``).
        """
        for last in (False, True):
            if (catalog := self.open()) is None:
                return None
            try:
                return work(catalog)
            except UsageError:
                raise
            except MaskregError as error:
                if last or not self._repair(error):
                    self.problem = error
                    return None
        raise AssertionError("the last turn returns")

    def search(self, query: Query, seen: Mapping[Ref, int] = MappingProxyType({}), seen_on: str = "") -> Search:
        """Live refs that match, from the catalog or, where that is not usable, from the store."""
        result = None
        searcher = Searcher(self._refs, self._store, seen, seen_on)
        if not self.is_unmade():
            result = self.use(lambda catalog: searcher.search(catalog, query))
        return searcher.search_snapshot(self._in_memory(), query) if result is None else result

    def page(self, query: Query) -> list[SearchResult]:
        """Results alone, as the catalog has them now; from the store where there is no catalog.

        Unlike :meth:`search` this does not ask the store what the catalog may lack, so that it costs no more for a
        large registry. :meth:`search` brings the catalog up to date.
        """
        if not self.url:
            return self._in_memory().answer(query).results
        if self.is_unmade():
            query.check()
            return []
        rows = self.use(lambda catalog: catalog.search(query))
        if rows is None:
            raise self.problem or NotFoundError("this registry has no catalog")
        return rows

    def number(self, ref: Ref) -> int:
        """Number of the entry of a tag that a local catalog knows; 0 when there is none, or no usable catalog.

        Nothing is filled or repaired: this looks, whatever the catalog is.
        """
        if not self.url.startswith(_LOCAL) or not Path(self.url.removeprefix(_LOCAL)).exists():
            return 0
        try:
            with nullcontext(self._opened) if self._opened else open_catalog(self.url) as catalog:
                return catalog.number(ref) if catalog.filled_from() == self._uuid() else 0
        except MaskregError:
            return 0

    def is_unmade(self) -> bool:
        """Whether a local catalog is still to be made, and has nothing to hold yet: then looking does not make it."""
        is_missing = self.url.startswith(_LOCAL) and not Path(self.url.removeprefix(_LOCAL)).exists()
        return is_missing and not any(self._refs.each_number())

    def note(self, entry: RefEntry, action: str) -> None:
        """Index an entry of the ref log and the artifact it points to, and log the event."""

        def write(catalog: Catalog) -> None:
            if catalog.keeps_up:
                return
            if entry.digest is not None and catalog.get(entry.digest) is None:
                # An artifact whose manifest cannot be read keeps its name, and search skips it with a warning.
                for digest, manifest in readable_manifests(self._store, [entry.digest], []):
                    catalog.put_artifact(digest, manifest)
            catalog.put_ref(entry)
            catalog.log(Event(action, str(entry.ref), entry.by, {"digest": entry.digest or "", "n": entry.n}))

        self.use(write)

    def forget(self, digest: Digest, *, objects: int, size: int, by: str) -> None:
        """Remove a deleted artifact from the index, and log the event."""

        def write(catalog: Catalog) -> None:
            catalog.drop_artifact(digest)
            catalog.log(Event("gc", digest, by, {"objects": objects, "bytes": size}))

        self.use(write)

    def rebuild(self, *, progress: Progress = SILENT) -> Rebuilt:
        """Recreate the index from the store; measurements, events and seen sources stay.

        A damaged SQLite file is set aside and replaced.
        """
        with repairing(self.url) if self.url else nullcontext():
            return self._rebuild(progress=progress)

    def audit(self) -> tuple[MaskregError | str, ...]:
        """What is wrong with the catalog: damage, or what it has otherwise than the store. Nothing is repaired.

        Empty for a registry that has no catalog, and for one that was never filled from this store. What the catalog
        does not know yet is no damage: the next search takes it in.
        """
        self.close()
        if self.is_unmade():
            return ()
        if (catalog := self._open(_leave)) is None:
            return (self.problem,) if self.problem is not None else ()
        try:
            catalog.check()
            if catalog.filled_from() != self._uuid():
                return ()
            unread: dict[str, str] = {}
            late = set(behind(self._refs.numbers(), catalog.all_numbers()))
            heads = [entry for entry in self._heads(unread, []) if entry.ref not in late]
            digests = set(digests_in(self._store))
            # An artifact without a name need not be in the index.
            named = sorted(digests & {entry.digest for entry in heads})
            manifests = readable_manifests(self._store, named, [])
            # What cannot be read is damage of the store; a row about it is neither right nor wrong.
            excepted = {*late, *map(ref_of, unread)}
            return catalog.differing(heads, manifests, except_refs=excepted, except_artifacts=digests)
        except MaskregError as error:
            return (error,)
        finally:
            self.close()

    def close(self) -> None:
        """Close the catalog's connections and forget its problems."""
        if self._opened is not None:
            self._opened.close()
        self._opened, self.problem = None, None

    # Opening and filling

    def _open(self, prepare: Callable[[Catalog], None]) -> Catalog | None:
        if self._opened is None and self.url and self.problem is None:
            opened = None
            try:
                opened = open_catalog(self.url)
                prepare(opened)
                self._opened = opened
            except MaskregError as error:
                self.problem = error
            finally:
                if opened is not None and self._opened is None:
                    opened.close()
        return self._opened

    def _or_raise(self, opened: Catalog | None) -> Catalog:
        if opened is None:
            raise self.problem or NotFoundError("this registry has no catalog")
        return opened

    def _fill_if_new(self, catalog: Catalog) -> None:
        filled, uuid = catalog.filled_from(), self._uuid()
        # A registry that nothing was ever written to has nothing to fill it with.
        if filled != uuid and (filled is not None or uuid or any(self._refs.each_number())):
            self._fill(catalog)

    def _fill(self, catalog: Catalog, *, progress: Progress = SILENT) -> Rebuilt:
        unread: dict[str, str] = {}
        damaged: list[MaskregError] = []
        followed = self._refs.journal.start()
        manifests = readable_manifests(self._store, digests_in(self._store), damaged)
        heads = self._heads(unread, damaged)
        uuid = self._uuid()
        entries = counting(progress, "read tags", heads)
        manifests = counting(progress, "read manifests", manifests)
        refs, artifacts, lost = catalog.rebuild(entries, manifests, registry=uuid, unread=unread, followed=followed)
        return Rebuilt(refs, artifacts, tuple(damaged), lost)

    def _in_memory(self) -> Snapshot:
        # Of everything that has or had a name.
        unread: dict[str, str] = {}
        entries = list(self._heads(unread, []))
        digests = sorted({entry.digest for entry in entries if entry.digest})
        return Snapshot(entries, readable_manifests(self._store, digests, []), unread)

    def _heads(self, unread: dict[str, str], damaged: list[MaskregError]) -> Iterator[RefEntry]:
        errors: list[CorruptError] = []
        yield from self._refs.heads(errors)
        damaged += errors
        unread.update((error.key, error.message) for error in errors)

    # Repairing

    def _repair(self, error: MaskregError) -> bool:
        """Rebuild a damaged local catalog; whether it can be used now."""
        damaged = isinstance(error, CorruptError) and "catalog_damaged" in error.facts
        if not damaged or not self.url.startswith(_LOCAL) or self.remarks:
            return False
        try:
            with repairing(self.url):
                self.close()
                if self._is_sound():
                    return True
                rebuilt = self._rebuild()
        except MaskregError:
            # Such as a folder that is read-only; the damage is what there is to say.
            self.close()
            self.problem = error
            return False
        remark = f"the catalog was damaged ({error}) and has been rebuilt from the store"
        if rebuilt.lost:
            remark += f"; {counted(rebuilt.lost, 'record', 'was')} lost that only it held (measurements, events)"
        if rebuilt.aside:
            remark += f"; the damaged file is {rebuilt.aside}"
        self.remarks.append(remark)
        return True

    def _is_sound(self) -> bool:
        try:
            with open_catalog(self.url) as catalog:
                catalog.check()
                return True
        except CorruptError:
            return False

    def _rebuild(self, *, progress: Progress = SILENT) -> Rebuilt:
        self.close()
        opened = self._open(_leave)
        damage = self.problem
        if opened is not None:
            try:
                opened.check_file()
                return self._fill(opened, progress=progress)
            except CorruptError as error:
                damage = error
        if not isinstance(damage, CorruptError) or not self.url.startswith(_LOCAL):
            raise damage or NotFoundError("this registry has no catalog")
        self.close()
        aside, lost = set_aside(self.url)
        filled = self._fill(self._or_raise(self._open(_leave)), progress=progress)
        return replace(filled, aside=str(aside), lost=lost)


_LOCAL = "sqlite:///"


def _leave(catalog: Catalog) -> None:
    """Open without filling: the caller fills."""


class Turns:
    """Writes each object once, with the help of the catalog's database where the store needs it.

    The store is probed before the first write::

        create(k, first), create(k, second)
        second refused    the store itself decides who is first: the catalog is not even opened
        second accepted   hold the lock `k` in the catalog, look whether `k` is there, and put it;
                          only PostgreSQL serializes all machines
    """

    def __init__(self, store: Store, index: Index) -> None:
        """Write to ``store``, in turns by the catalog of ``index``; nothing is probed yet."""
        self._store = store
        self._index = index
        self._safe: bool | None = None

    def create(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one; returns whether this call wrote it."""
        if self._safe is None:
            self._safe = probe(self._store).safe
        if self._safe:
            return self._store.create(key, data)
        catalog = self._index.must_open()
        if not catalog.safe_refs:
            raise ConfigError(
                f"{self._store.url} does not support create-only writes, so its catalog has to be PostgreSQL"
            )
        with catalog.lock(key):
            if self._store.head(key) is not None:
                return False
            self._store.put(key, data)
            return True

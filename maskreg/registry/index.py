"""The catalog of a registry: opened on first use, filled from the store, and never needed to work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from maskreg.artifact.layout import ARTIFACTS, MANIFEST
from maskreg.artifact.manifest import Manifest
from maskreg.artifact.presence import read_manifest
from maskreg.catalog import Catalog, Event, Query, SearchResult, memory_catalog, open_catalog, set_aside
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, MaskregError, NotFoundError, UsageError
from maskreg.result import Result
from maskreg.store.base import Store
from maskreg.store.reflog import RefEntry, RefLog

_READERS = 16
_BATCH = 256


@dataclass(frozen=True)
class Rebuilt(Result):
    """A catalog that was recreated from the store.

    Attributes:
        refs: tags in it.
        artifacts: artifacts in it.
        damaged: what could not be read, and was left out.
    """

    refs: int
    artifacts: int
    damaged: tuple[MaskregError, ...]


class Index:
    """The catalog of one store, or its absence.

    The store holds the truth, so a catalog that cannot be opened or written is not an error: the reason is kept in
    ``problem``, and searching reads the store instead. A catalog that was not filled from this store (a new one, or
    one whose filling broke off) is filled when it is opened.

    Attributes:
        url: the catalog's SQLAlchemy URL; empty when the registry has none.
        problem: why the catalog is unusable or behind the store; None when it is neither, as far as is known.
    """

    def __init__(self, url: str, store: Store, uuid: Callable[[], str]) -> None:
        """Name the catalog; nothing is opened yet.

        Args:
            url: its SQLAlchemy URL; empty for a registry that has none.
            store: what it indexes.
            uuid: reads the registry's identity.
        """
        self.url = url
        self.problem: MaskregError | None = None
        self._store = store
        self._refs = RefLog(store)
        self._uuid = uuid
        self._opened: Catalog | None = None

    def open(self) -> Catalog | None:
        """The catalog, filled; None when there is none or it cannot be used (see ``problem``)."""
        return self._open(self._fill_if_new)

    def must_open(self) -> Catalog:
        """The catalog, filled.

        Raises:
            MaskregError: why it cannot be used.
        """
        return self._or_raise(self.open())

    def search(self, query: Query) -> list[SearchResult]:
        """Live refs that match, from the catalog or, where that is not usable, from the store.

        Raises:
            UsageError: the query is malformed.
        """
        if (catalog := self.open()) is not None:
            try:
                return catalog.search(query)
            except UsageError:
                raise
            except MaskregError as error:
                self.problem = error
        damaged: list[CorruptError] = []
        with self._in_memory(damaged) as catalog:
            results = catalog.search(query)
        self._note_damage(damaged)
        return results

    def note(self, entry: RefEntry, action: str) -> None:
        """Index an entry of the ref log and the artifact it points to, and log the event."""

        def write(catalog: Catalog) -> None:
            if entry.digest is not None and catalog.get(entry.digest) is None:
                catalog.put_artifact(entry.digest, read_manifest(self._store, entry.digest)[1])
            catalog.put_ref(entry)
            catalog.log(Event(action, str(entry.ref), entry.by, {"digest": entry.digest or "", "n": entry.n}))

        self._try(write)

    def forget(self, digest: Digest, *, objects: int, size: int, by: str) -> None:
        """Remove a deleted artifact from the index, and log the event.

        Args:
            digest: the artifact.
            objects: how many objects it had.
            size: their bytes.
            by: who collected it.
        """

        def write(catalog: Catalog) -> None:
            catalog.drop_artifact(digest)
            catalog.log(Event("gc", digest, by, {"objects": objects, "bytes": size}))

        self._try(write)

    def rebuild(self) -> Rebuilt:
        """Recreate the index from the store; measurements, events and seen sources stay.

        A damaged SQLite file is set aside and replaced.

        Raises:
            MaskregError: there is no catalog, or it cannot be opened.
        """
        self.close()
        opened = self._open(_leave)
        if opened is None and isinstance(self.problem, CorruptError):
            set_aside(self.url)
            self.problem = None
            opened = self._open(_leave)
        return self._fill(self._or_raise(opened))

    def close(self) -> None:
        """Close the catalog's connections and forget its problems."""
        if self._opened is not None:
            self._opened.close()
        self._opened, self.problem = None, None

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

    def _try(self, write: Callable[[Catalog], None]) -> None:
        if (catalog := self.open()) is None:
            return
        try:
            write(catalog)
        except MaskregError as error:
            self.problem = error

    def _fill_if_new(self, catalog: Catalog) -> None:
        if catalog.filled_from() != self._uuid():
            self._note_damage(self._fill(catalog).damaged)

    def _fill(self, catalog: Catalog) -> Rebuilt:
        unread_refs: list[CorruptError] = []
        unread: list[MaskregError] = []
        manifests = readable_manifests(self._store, digests_in(self._store), unread)
        refs, artifacts = catalog.rebuild(self._refs.heads(unread_refs), manifests, registry=self._uuid())
        return Rebuilt(refs, artifacts, (*unread_refs, *unread))

    def _in_memory(self, damaged: list[CorruptError]) -> Catalog:
        # A throw-away catalog of everything that has a name.
        entries = [entry for entry in self._refs.heads(damaged) if not entry.deleted]
        digests = sorted({entry.digest for entry in entries if entry.digest})
        catalog = memory_catalog()
        catalog.rebuild(entries, readable_manifests(self._store, digests, []))
        return catalog

    def _note_damage(self, damaged: Sequence[MaskregError]) -> None:
        # What could not be read cannot be found by searching either.
        if damaged:
            self.problem = damaged[0]


def _leave(catalog: Catalog) -> None:
    """Open without filling: the caller fills."""


def digests_in(store: Store) -> Iterator[Digest]:
    """Artifacts of which the store holds at least the manifest."""
    for info in store.list(ARTIFACTS):
        name, _, key = info.key.removeprefix(ARTIFACTS).partition("/")
        if key == MANIFEST:
            try:
                yield Digest(f"sha256:{name}")
            except ValueError:
                continue


def readable_manifests(
    store: Store, digests: Iterable[Digest], damaged: list[MaskregError]
) -> Iterator[tuple[Digest, Manifest]]:
    """The manifests of ``digests``; errors of missing or damaged ones are appended to ``damaged``."""

    def read(digest: Digest) -> Manifest | MaskregError:
        try:
            return read_manifest(store, digest)[1]
        except (DataError, NotFoundError) as error:
            return error

    rest = iter(digests)
    with ThreadPoolExecutor(_READERS) as pool:
        while batch := list(islice(rest, _BATCH)):
            for digest, result in zip(batch, pool.map(read, batch), strict=True):
                if isinstance(result, MaskregError):
                    damaged.append(result)
                else:
                    yield digest, result

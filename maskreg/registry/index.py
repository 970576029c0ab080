"""The catalog of a registry, opened when it is first needed; a registry works without a usable one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from maskreg.artifact.layout import ARTIFACTS, MANIFEST
from maskreg.artifact.manifest import Manifest
from maskreg.artifact.presence import read_manifest
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, MaskregError, NotFoundError
from maskreg.store.base import Store

if TYPE_CHECKING:
    from maskreg.catalog import Catalog
    from maskreg.store.reflog import RefEntry

_READERS = 16
_BATCH = 256


@dataclass(frozen=True)
class Rebuilt:
    """What a catalog was rebuilt from, and what could not be read."""

    refs: int
    artifacts: int
    damaged: tuple[MaskregError, ...]


class Index:
    """Opens a catalog late, and remembers why it could not be opened or written.

    Attributes:
        problem: why the catalog is unusable or behind; None when it is neither, as far as is known.
    """

    def __init__(self, url: str, fill: Callable[[Catalog], None]) -> None:
        """Name the catalog; nothing is opened yet.

        Args:
            url: its SQLAlchemy URL; empty for a registry that has none.
            fill: called with a catalog that was just opened, puts everything into one that lacks it.
        """
        self.url = url
        self._fill = fill
        self.problem: MaskregError | None = None
        self._opened: Catalog | None = None

    def open(self) -> Catalog | None:
        """The catalog; None when there is none, or it cannot be used (see ``problem``)."""
        return self._open(self._fill)

    def _open(self, fill: Callable[[Catalog], None]) -> Catalog | None:
        if self._opened is None and self.url and self.problem is None:
            from maskreg.catalog import Catalog

            opened = None
            try:
                opened = Catalog.open(self.url)
                fill(opened)
                self._opened = opened
            except MaskregError as error:
                self.problem = error
            finally:
                if opened is not None and self._opened is None:
                    opened.close()
        return self._opened

    def must_open(self) -> Catalog:
        """The catalog, or the error that keeps it from being used."""
        return self._or_raise(self.open())

    def _or_raise(self, opened: Catalog | None) -> Catalog:
        if opened is None:
            raise self.problem or NotFoundError("this registry has no catalog")
        return opened

    def reopen(self) -> Catalog:
        """Open the catalog again, as it is; a damaged SQLite file is set aside and made anew.

        Raises:
            MaskregError: what opening raises, when that does not help.
        """
        from maskreg.catalog import set_aside

        self.close()
        opened = self._open(_leave)
        if opened is None and isinstance(self.problem, CorruptError):
            set_aside(self.url)
            self.problem = None
            opened = self._open(_leave)
        return self._or_raise(opened)

    def tell(self, write: Callable[[Catalog], None]) -> None:
        """Write to the catalog if it can be; the store holds the truth, so failing here fails nothing."""
        if (catalog := self.open()) is None:
            return
        try:
            write(catalog)
        except MaskregError as error:
            self.problem = error

    def note_damage(self, damaged: Sequence[MaskregError]) -> None:
        """Remember that something could not be read, and so is not to be found."""
        if damaged:
            self.problem = damaged[0]

    def close(self) -> None:
        """Close the catalog's connections and forget its problems."""
        if self._opened is not None:
            self._opened.close()
        self._opened, self.problem = None, None


def _leave(catalog: Catalog) -> None:
    """Whoever opens it fills it."""


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
    """The manifests of ``digests``; what is missing or damaged is put into ``damaged`` and left out."""

    def read(digest: Digest) -> Manifest | MaskregError:
        try:
            return read_manifest(store, digest)[1]
        except (DataError, NotFoundError) as error:
            return error

    rest = iter(digests)
    with ThreadPoolExecutor(_READERS) as pool:
        while batch := list(islice(rest, _BATCH)):
            for digest, found in zip(batch, pool.map(read, batch), strict=True):
                if isinstance(found, MaskregError):
                    damaged.append(found)
                else:
                    yield digest, found


def index_in_memory(store: Store, heads: Iterable[RefEntry]) -> Catalog:
    """A throw-away catalog of everything that has a name, read from the store alone."""
    from maskreg.catalog import Catalog

    entries = [entry for entry in heads if not entry.deleted]
    digests = sorted({entry.digest for entry in entries if entry.digest})
    catalog = Catalog.open("sqlite://")
    catalog.rebuild(entries, readable_manifests(store, digests, []))
    return catalog


def note(catalog: Catalog, store: Store, entry: RefEntry, action: str) -> None:
    """Index an entry of a ref log and what it points to, and log who did what."""
    from maskreg.catalog import Event

    if entry.digest is not None and catalog.get(entry.digest) is None:
        catalog.put_artifact(entry.digest, read_manifest(store, entry.digest)[1])
    catalog.put_ref(entry)
    catalog.log(Event(action, str(entry.ref), entry.by, {"digest": entry.digest or "", "n": entry.n}))


def forget(catalog: Catalog, digest: Digest, by: str, detail: Mapping[str, Any]) -> None:
    """Take a collected artifact out of the index, and log it."""
    from maskreg.catalog import Event

    catalog.drop_artifact(digest)
    catalog.log(Event("gc", digest, by, detail))

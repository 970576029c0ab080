"""The catalog of a registry, opened when it is first needed; a registry works without a usable one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from maskreg.artifact.layout import MANIFEST
from maskreg.artifact.manifest import Manifest
from maskreg.digest import Digest
from maskreg.errors import CorruptError, DataError, MaskregError, NotFoundError
from maskreg.registry.presence import read_manifest
from maskreg.store.base import Store

if TYPE_CHECKING:
    from maskreg.catalog import Catalog
    from maskreg.store.reflog import RefEntry

_ARTIFACTS = "artifacts/sha256/"
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

    def __init__(self, url: str) -> None:
        """Name the catalog by its SQLAlchemy URL; empty for a registry that has none."""
        self.url = url
        self.problem: MaskregError | None = None
        self._opened: Catalog | None = None

    def open(self) -> Catalog | None:
        """The catalog; None when there is none, or it cannot be used (see ``problem``)."""
        if self._opened is None and self.url and self.problem is None:
            from maskreg.catalog import Catalog

            try:
                self._opened = Catalog.open(self.url)
            except MaskregError as error:
                self.problem = error
        return self._opened

    def must_open(self) -> Catalog:
        """The catalog, or the error that keeps it from being used."""
        opened = self.open()
        if opened is None:
            raise self.problem or NotFoundError("this registry has no catalog")
        return opened

    def reopen(self) -> Catalog:
        """Open the catalog again; a damaged SQLite file is set aside and made anew.

        Raises:
            MaskregError: what opening raises, when that does not help.
        """
        from maskreg.catalog import set_aside

        self.close()
        if self.open() is None and isinstance(self.problem, CorruptError):
            set_aside(self.url)
            self.problem = None
        return self.must_open()

    def tell(self, write: Callable[[Catalog], None]) -> None:
        """Write to the catalog if it can be; the store holds the truth, so failing here fails nothing."""
        if (catalog := self.open()) is None:
            return
        try:
            write(catalog)
        except MaskregError as error:
            self.problem = error

    def close(self) -> None:
        """Close the catalog's connections and forget its problems."""
        if self._opened is not None:
            self._opened.close()
        self._opened, self.problem = None, None


def digests_in(store: Store) -> Iterator[Digest]:
    """Artifacts of which the store holds at least the manifest."""
    for info in store.list(_ARTIFACTS):
        name, _, key = info.key.removeprefix(_ARTIFACTS).partition("/")
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

"""A registry: a store, the names in it, and a catalog to search by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.manifest import Object
from maskreg.artifact.presence import absent, listing, objects_of, read_manifest, whole_parts
from maskreg.digest import Digest
from maskreg.errors import ConfigError, CorruptError, MaskregError, NotFoundError, TryAgainError, UsageError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref
from maskreg.registry.home import check_home
from maskreg.registry.identity import ensure_identity, read_identity, who
from maskreg.registry.index import Index, Rebuilt, digests_in, forget, index_in_memory, note, readable_manifests
from maskreg.registry.near import near_refs
from maskreg.registry.resolved import Resolved
from maskreg.registry.settling import PATIENCE_S, settle
from maskreg.settings import Remote, Settings
from maskreg.store import FileStore, Store, open_store
from maskreg.store.probe import probe
from maskreg.store.reflog import RefEntry, RefLog

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.catalog import Catalog, Found, Query
    from maskreg.registry.collect import GcReport
    from maskreg.registry.verify import VerifyReport

GRACE = timedelta(days=7)
"""How long garbage collection leaves alone what no name points to."""


class Registry:
    """Artifacts and their names in one store. Nothing is read or written before a method needs it.

    Attributes:
        store: where objects and refs are.
        refs: the ref log.
        name: what people call this registry: ``local``, or the remote's name.
        url: where it is, without credentials.
        root: the directory of a local registry; None elsewhere.
        by: who writes, as the ref log records it.
        patience_s: how long to wait for a garbage collection that looks at the same artifact, in seconds.
    """

    def __init__(
        self, store: Store, *, name: str = "local", root: Path | None = None, catalog_url: str = "", by: str = ""
    ) -> None:
        """Wrap a store; ``local`` and ``remote`` are the usual ways in."""
        self.store = store
        self.name = name
        self.url = store.url
        self.root = root
        self.by = by or who()
        self.patience_s = PATIENCE_S
        self.refs = RefLog(store, lock=self._turn if catalog_url and root is None else None)
        self._index = Index(catalog_url, self._ensure_filled)
        self._uuid = ""
        self._safe: bool | None = None

    @classmethod
    def local(cls, settings: Settings) -> Registry:
        """The registry of this machine, in the settings' home; an empty one when there is nothing yet.

        Raises:
            ConfigError: the home can be no folder.
        """
        check_home(settings.home)
        store = FileStore(settings.home)
        return cls(store, root=store.root, catalog_url=f"sqlite:///{store.root / 'catalog.db'}")

    @classmethod
    def remote(cls, remote: Remote) -> Registry:
        """A registry elsewhere.

        Raises:
            ConfigError: its URL is of no known kind.
        """
        return cls(open_store(remote.url, remote.options), name=remote.name, catalog_url=remote.catalog)

    def close(self) -> None:
        """Close the connections of the catalog and of the store."""
        self._index.close()
        self.store.close()

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def uuid(self) -> str:
        """The registry's identity; empty while nothing was ever written to it.

        Raises:
            ConfigError: the registry has a format that this version does not know.
        """
        if not self._uuid:
            self._uuid = read_identity(self.store)
        return self._uuid

    def check_format(self) -> None:
        """Refuse a registry of an unknown format, before anything of it is read.

        Raises:
            ConfigError: it has a format that this version does not know.
        """
        self._uuid = self.uuid

    def ensure_uuid(self) -> str:
        """The registry's identity, given to it now when it has none."""
        if not self.uuid:
            with self._turn("identity"):
                unconditional = self._safe is False
                self._uuid = ensure_identity(self.store, self.store.put if unconditional else self.store.create)
        return self._uuid

    @property
    def catalog(self) -> Catalog | None:
        """The catalog; None when there is none or it is unusable, then ``catalog_problem`` says why."""
        return self._index.open()

    @property
    def catalog_url(self) -> str:
        """The catalog's SQLAlchemy URL; empty when there is none."""
        return self._index.url

    @property
    def catalog_problem(self) -> MaskregError | None:
        """Why the catalog is unusable, or behind the store; None when it is neither, as far as is known."""
        return self._index.problem

    # Reading

    def resolve(self, ref: Ref) -> Resolved:
        """Find out which artifact a reference means.

        Raises:
            NotFoundError: there is no such name (with near ones as hint), it was removed, or there is no such digest.
        """
        head = self.head(ref)
        if ref.digest is not None:
            if self.store.head(artifact_prefix(ref.digest) + MANIFEST) is None:
                raise NotFoundError(f"artifact {ref.digest.short} is not in {self.name} ({self.url})")
            entry = head if head and not head.deleted and head.digest == ref.digest else None
            return Resolved(ref, ref.digest, entry)
        live = self._live(ref, head)
        assert live.digest is not None
        return Resolved(ref, live.digest, live)

    def head(self, ref: Ref) -> RefEntry | None:
        """The latest entry of a tag's log, also when it says that the tag was removed; None when there is none."""
        self.check_format()
        return self.refs.head(ref)

    def artifact(self, digest: Digest) -> Artifact:
        """Open an artifact.

        Raises:
            NotFoundError: it is not in this registry.
            DataError: it is damaged.
        """
        from maskreg.artifact.reader import Artifact

        return Artifact.open(self.store, digest)

    def history(self, ref: Ref) -> list[RefEntry]:
        """Every entry of a tag's log, the oldest first.

        Raises:
            NotFoundError: there was never such a tag.
        """
        if self.head(ref) is None:
            raise self._unknown(ref)
        return self.refs.history(ref)

    def search(self, query: Query) -> list[Found]:
        """Live refs that match; without a usable catalog everything is read from the store.

        Raises:
            UsageError: the query makes no sense.
        """
        self.check_format()
        if (catalog := self.catalog) is not None:
            try:
                return catalog.search(query)
            except UsageError:
                raise
            except MaskregError as error:
                self._index.problem = error
        damaged: list[CorruptError] = []
        with index_in_memory(self.store, self.refs.heads(damaged)) as everything:
            found = everything.search(query)
        self._index.note_damage(damaged)
        return found

    def verify(self, ref: Ref | None = None, *, progress: Progress = SILENT, jobs: int = 4) -> VerifyReport:
        """Hash every object of one artifact, or of all; damage is reported, and the rest still looked at.

        Raises:
            NotFoundError: there is no such name.
        """
        from maskreg.registry.verify import verify

        digests = None if ref is None else [self.resolve(ref).digest]
        return verify(self, digests, progress=progress, jobs=jobs)

    # Naming

    def publish(self, ref: Ref, digest: Digest, *, card: Card, after: int | None = None, origin: str = "") -> RefEntry:
        """Point a tag at an artifact that is here.

        Args:
            ref: the tag.
            digest: the artifact; its objects have to be here, each present part as a whole.
            card: what people say about it.
            after: number of the tag's entry when the work began; read now when left out.
            origin: uuid of the registry that it was pulled from; empty when it was made here.

        Raises:
            NotFoundError: the artifact is not here.
            CorruptError: it is here in pieces.
            ConflictError: the tag was moved meanwhile.
            TryAgainError: a garbage collection is about to delete the artifact, or has begun to.
        """
        after = self.head_number(ref) if after is None else after
        data, manifest = read_manifest(self.store, digest)
        here = listing(self.store, digest)
        if MANIFEST not in here:
            raise self._collected(digest)
        needed = objects_of(manifest, whole_parts(self.store, digest, manifest, here))
        return settle(
            self.store,
            digest,
            data,
            needed,
            lambda: self._must_have(digest, needed),
            lambda: self.append(ref, digest, card=card, after=after, origin=origin),
            patience_s=self.patience_s,
        )

    def _must_have(self, digest: Digest, needed: list[Object]) -> None:
        if absent(needed, listing(self.store, digest)):
            raise self._collected(digest)

    def _collected(self, digest: Digest) -> TryAgainError:
        return TryAgainError(
            f"a garbage collection of {self.url} deletes {digest.short} at this moment",
            hint="run the same command again: then the artifact is there, or it is known to be gone",
        )

    def head_number(self, ref: Ref) -> int:
        """Number of the latest entry of a tag's log; 0 when there is none."""
        head = self.head(ref)
        return head.n if head else 0

    def append(
        self, ref: Ref, digest: Digest | None, *, card: Card, after: int, origin: str = "", action: str = "publish"
    ) -> RefEntry:
        """Write the next entry of a tag's log, and index it; says nothing about the artifact's objects.

        An entry that says the same already is not repeated.

        Raises:
            ConflictError: the tag was moved since ``after``.
        """
        self.ensure_uuid()
        head = self.refs.head(ref)
        if head and head.n == after and (head.digest, head.card, head.deleted) == (digest, card, digest is None):
            return head
        entry = self.refs.append(ref, after=after, digest=digest, card=card, by=self.by, origin=origin)
        self._index.tell(lambda catalog: note(catalog, self.store, entry, action))
        return entry

    def tag(self, ref: Ref, new: Ref) -> RefEntry:
        """Give an artifact one more name, or move that name to it; what was said of it under ``ref`` comes along."""
        after, found = self.head_number(new), self.resolve(ref)
        # Of a digest that the name pointed to earlier, what was said then.
        said = [found.card] if found.entry else [e.card for e in self.refs.history(ref) if e.digest == found.digest]
        return self.publish(new, found.digest, card=said[-1] if said else Card(), after=after)

    def annotate(
        self,
        ref: Ref,
        *,
        family: str | None = None,
        method: str | None = None,
        license: str | None = None,
        description: str | None = None,
        meta: Mapping[str, str] | None = None,
    ) -> RefEntry:
        """Change what people say about a tag; None leaves a field, an empty text of ``meta`` takes its key away."""
        live = self._live(ref, self.head(ref))
        texts = {"family": family, "method": method, "license": license, "description": description}
        merged = {k: v for k, v in {**live.card.meta, **(meta or {})}.items() if v}
        card = replace(live.card, **{k: v for k, v in texts.items() if v is not None}, meta=merged)
        return self.append(ref, live.digest, card=card, after=live.n, origin=live.origin, action="annotate")

    def remove(self, ref: Ref) -> RefEntry:
        """Take a tag away; its log stays, and ``restore`` brings it back until its objects are collected.

        Raises:
            NotFoundError: there is no such tag.
        """
        live = self._live(ref, self.head(ref))
        if ref.digest is not None and ref.digest != live.digest:
            raise NotFoundError(f"{replace(ref, digest=None)} does not point to {ref.digest.short}")
        return self.append(ref, None, card=live.card, after=live.n, origin=live.origin, action="remove")

    def restore(self, ref: Ref) -> RefEntry:
        """Bring a removed tag back, as it was.

        Raises:
            NotFoundError: there was never such a tag, or its artifact was collected.
            UsageError: the tag was not removed.
        """
        head = self.head(ref)
        if head is None:
            raise self._unknown(ref)
        if not head.deleted:
            raise UsageError(f"{ref} was not removed")
        last = next(entry for entry in reversed(self.refs.history(ref)) if not entry.deleted)
        assert last.digest is not None
        return self.publish(ref, last.digest, card=last.card, after=head.n, origin=last.origin)

    # Care

    def rebuild(self) -> Rebuilt:
        """Recreate the catalog's index from the store; measurements, events and seen sources stay.

        Raises:
            MaskregError: there is no catalog, or it cannot be opened.
        """
        return self._fill(self._index.reopen())

    def gc(self, grace: timedelta = GRACE, *, dry_run: bool = False, progress: Progress = SILENT) -> GcReport:
        """Delete artifacts that no name points to, and what interrupted work left behind.

        Args:
            grace: leave alone what was written, or lost its name, less than this ago.
            dry_run: only report.
            progress: hears of the bytes that are deleted.
        """
        from maskreg.registry.collect import collect

        self.check_format()
        return collect(self, grace, dry_run=dry_run, progress=progress)

    def forget(self, digest: Digest, objects: int, size: int) -> None:
        """Take a deleted artifact out of the catalog, and note how much it was (``size`` in bytes)."""
        self._index.tell(lambda catalog: forget(catalog, digest, self.by, {"objects": objects, "bytes": size}))

    def _ensure_filled(self, catalog: Catalog) -> None:
        # A lost index comes back by itself: the store has everything that is in it.
        if catalog.filled_from() != self.uuid:
            self._index.note_damage(self._fill(catalog).damaged)

    def _fill(self, catalog: Catalog) -> Rebuilt:
        lost: list[CorruptError] = []
        unread: list[MaskregError] = []
        manifests = readable_manifests(self.store, digests_in(self.store), unread)
        refs, artifacts = catalog.rebuild(self.refs.heads(lost), manifests, registry=self.uuid)
        return Rebuilt(refs, artifacts, (*lost, *unread))

    def _live(self, ref: Ref, head: RefEntry | None) -> RefEntry:
        if head is None:
            raise self._unknown(ref)
        if head.deleted:
            raise NotFoundError(
                f"{ref} was removed from {self.name} by {head.by} at {head.at:%Y-%m-%d %H:%M:%S} UTC",
                hint=f"maskreg restore {ref}",
            )
        return head

    def _unknown(self, ref: Ref) -> NotFoundError:
        near = near_refs(self.refs.tags(), ref)
        hint = f"did you mean {' or '.join(near)}?" if near else "maskreg list shows what there is"
        return NotFoundError(f"there is no {ref} in {self.name} ({self.url})", hint=hint)

    @contextmanager
    def _turn(self, name: str) -> Iterator[None]:
        # Only a store that cannot refuse a second writer needs a database to take turns.
        if self._safe is None:
            self._safe = not self._index.url or self.root is not None or probe(self.store).safe
        if self._safe:
            yield
            return
        catalog = self._index.must_open()
        if not catalog.safe_refs:
            raise ConfigError(f"{self.url} does not hold create-only writes; its catalog has to be PostgreSQL")
        with catalog.lock(name):
            yield

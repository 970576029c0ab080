"""A registry: a store, the names in it, and a catalog to search by."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from maskreg.closing import Closing
from maskreg.digest import Digest
from maskreg.errors import CorruptError, NotFoundError, UnavailableError
from maskreg.ref import DEFAULT_TAG, Card, Ref
from maskreg.registry.identity import check_home, ensure_identity, read_identity, who
from maskreg.registry.index import Index
from maskreg.registry.keys import Pins, PrivateKeys
from maskreg.registry.searching import Search, lost, search_server, without
from maskreg.registry.trust import Trust, find_unvouched
from maskreg.settings import Remote, Settings
from maskreg.signature import PublicKey
from maskreg.store import FileStore, Store, open_store
from maskreg.store.chain import check_movable
from maskreg.store.reflog import RefEntry, RefLog

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.catalog import Query, SearchResult
    from maskreg.catalog.query import Counts
    from maskreg.registry.witness import Witness
    from maskreg.store.base import Service


_MAX_SUGGESTIONS = 3
_LOOKS = 2
_MAX_COMPARED = 10_000
_MAX_CANDIDATES = 20


@dataclass(frozen=True)
class Resolved:
    """What a reference means; ``entry`` is None for a pinned one whose tag is absent or points elsewhere."""

    ref: Ref
    digest: Digest
    entry: RefEntry | None

    @property
    def card(self) -> Card:
        """What people say about it; empty when no tag points to it."""
        return self.entry.card if self.entry else Card()


class Registry(Closing):
    """Artifacts and their names in one store. Nothing is read or written before a method needs it.

    This class resolves names and appends to the ref log. Built on it: ``tags`` (tag, annotate, remove, restore),
    ``push``, ``pull``, ``verify`` and ``collect``.

    Attributes:
        store: where objects and refs are.
        refs: the ref log.
        index: the catalog, which can be absent or unusable.
        name: what people call this registry: ``local``, or the remote's name.
        url: where it is, without credentials.
        root: the directory of a local registry; None elsewhere.
        served: it is a service, which appends to the log itself, signs, and keeps its own catalog.
        witness: the memory of what was seen of its tags; None for a local registry.
        trust: the keys of its projects. A service sets ``trust.signer``, and signs all that it writes.
        immutable_projects: projects in which every tag but ``latest`` that is set here must never move.
    """

    def __init__(
        self,
        store: Store,
        *,
        name: str = "local",
        root: Path | None = None,
        catalog_url: str = "",
        by: str = "",
        witness: Witness | None = None,
    ) -> None:
        """Wrap a store; :meth:`local` and :meth:`remote` are the usual constructors."""
        self.store = store
        self.name = name
        self.url = store.url
        self.root = root
        self.witness = witness
        self.served = store.service is not None
        self._by = by
        self.immutable_projects: frozenset[str] = frozenset()
        self.index = Index(catalog_url, store, lambda: self.uuid, lambda entry: self.trust.check_shown(entry))
        self.trust = Trust(store, lambda: self.uuid, name)
        sign = self.trust.sign_if_able if self.served else self.trust.sign
        self.refs = RefLog(store, sign=sign, may_change=self.served)
        self._uuid = ""

    @classmethod
    def local(cls, settings: Settings) -> Registry:
        """The registry of this machine, in the settings' home; empty when nothing was written yet."""
        check_home(settings.home)
        store = FileStore(settings.home)
        registry = cls(store, root=store.root, catalog_url=f"sqlite:///{store.root / 'catalog.db'}")
        registry.trust.pins, registry.trust.private = Pins(store), PrivateKeys(store.root)
        registry.immutable_projects = frozenset(settings.immutable_projects)
        return registry

    @classmethod
    def remote(cls, remote: Remote, settings: Settings | None = None) -> Registry:
        """A registry elsewhere.

        Args:
            remote: where it is.
            settings: say where the local registry is, which remembers what was seen of the remote's tags, and which
                tags are immutable; without them a remote that went back is not noticed.

        Raises:
            UnavailableError: offline is set.
        """
        if settings and settings.offline:
            raise UnavailableError(f"remote {remote.name} is not asked while offline is set", offline=True)
        from maskreg.registry.witness import Witness

        store = open_store(remote.url, remote.options)
        home = FileStore(settings.home) if settings else None
        witness = Witness(home, remote, store.url) if home else None
        catalog_url = remote.catalog if store.service is None else ""
        registry = cls(store, name=remote.name, catalog_url=catalog_url, witness=witness)
        registry.immutable_projects = frozenset(settings.immutable_projects if settings else ())
        registry.trust.configured = {project: PublicKey(key) for project, key in remote.keys.items()}
        if home and witness:
            registry.trust.pins, registry.trust.private = Pins(home), PrivateKeys(home.root)
            registry.trust.note = lambda text: witness.note(text)
        return registry

    @property
    def by(self) -> str:
        """Who writes, as the ref log records it."""
        if not self._by:
            self._by = (self.store.service.principal if self.store.service is not None else "") or who()
        return self._by

    @by.setter
    def by(self, name: str) -> None:
        """Write in this name."""
        self._by = name

    def close(self) -> None:
        """Close the connections of the catalog and of the store."""
        self.index.close()
        self.store.close()

    # Identity

    @property
    def uuid(self) -> str:
        """The registry's identity; empty while nothing was ever written to it."""
        if not self._uuid:
            self._uuid = read_identity(self.store)
        return self._uuid

    def check_format(self) -> None:
        """Refuse a registry of an unknown format before reading anything else from it."""
        self._uuid = self.uuid

    def ensure_uuid(self) -> str:
        """The registry's identity, created now when it has none."""
        if not self.uuid:
            self._uuid = ensure_identity(self.store)
        return self._uuid

    # The catalog

    def search(self, query: Query, *, read_entries: bool = False) -> Search:
        """Live refs that match; without a usable catalog everything is read from the store.

        With ``read_entries``, so is the latest entry of every tag where there is a catalog; not on a server.
        """
        self.check_format()
        if (service := self.store.service) is not None:
            return self._search_server(service, query)
        if self.witness is None:
            return self.index.search(query, read_entries=read_entries)
        self.witness.check_registry(self.uuid)
        return self.index.search(query, self.witness.numbers(self.uuid), self.name, read_entries=read_entries)

    def page(self, query: Query) -> list[SearchResult]:
        """Live refs that match, as the catalog has them now; see :meth:`maskreg.registry.index.Index.page`."""
        self.check_format()
        if (service := self.store.service) is not None:
            return list(search_server(service, query).results)
        return self.index.page(query)

    def counts(self, query: Query, keys: Collection[str]) -> Counts:
        """How many names match, by value of these filters; of a registry that is no service."""
        self.check_format()
        return self.index.counts(query, keys)

    def _search_server(self, service: Service, query: Query) -> Search:
        search = search_server(service, query)
        if self.witness is None:
            return search
        self.witness.check_registry(self.uuid)
        seen = self.witness.numbers(self.uuid)
        # The server keeps both its log and its index: only what this machine has seen can show that they went back.
        damaged = lost(self.refs.numbers(), seen, "was seen by this machine", self.name) if seen else {}
        return without(search, damaged)

    # Reading

    def resolve(self, ref: Ref) -> Resolved:
        """Find out which artifact a reference means."""
        head = self.head(ref)
        if ref.digest is not None:
            from maskreg.artifact.layout import MANIFEST, artifact_prefix

            if self.store.head(artifact_prefix(ref.digest) + MANIFEST) is None:
                facts: dict[str, Any] = {"history": replace(ref, digest=None)} if head else {}
                raise NotFoundError(
                    f"artifact {ref.digest.short} is not in {self.name} ({self.url})", **facts, remote=self.remote_name
                )
            entry = head if head and not head.deleted and head.digest == ref.digest else None
            return Resolved(ref, ref.digest, entry)
        live = self._live(ref, head)
        assert live.digest is not None
        return Resolved(ref, live.digest, live)

    def head(self, ref: Ref) -> RefEntry | None:
        """The latest entry of a tag's log, which can say that the tag was removed; None when there is none.

        It is held against what this machine knows: of its own log by the catalog, of a remote's by the witness.
        """
        self.check_format()
        ref = replace(ref, digest=None)
        head = self.refs.head(ref)
        if self.root is not None:
            head = self._indexed(ref, head)
        elif self.witness is not None:
            return self._seen(self.witness, ref, head)
        self.trust.check_latest(ref, head)
        return head

    def live(self, ref: Ref) -> RefEntry:
        """The latest entry of a tag that was not removed."""
        return self._live(ref, self.head(ref))

    def find_damage(self, ref: Ref | None = None) -> list[CorruptError]:
        """Everything that is wrong with the log of a tag, or with all logs; nothing new is remembered."""
        ref = ref and replace(ref, digest=None)
        damaged = [*self.refs.find_damage(ref), *self.find_untrusted(ref)]
        return list({(error.key, error.message): error for error in damaged}.values())

    def find_untrusted(self, ref: Ref | None = None) -> list[CorruptError]:
        """What does not continue what this machine knows of a tag, or of all; the logs themselves are not read."""
        damaged: list[CorruptError] = []
        if self.witness is not None:
            damaged += self.witness.find_damage(self.refs, self.uuid, ref)
        return [*damaged, *find_unvouched(self.trust, self.refs, ref)]

    def history(self, ref: Ref) -> list[RefEntry]:
        """Every entry of a tag's log, the oldest first."""
        head = self.head(ref)
        if head is None:
            raise self._unknown(ref)
        return self.refs.until(head)

    def artifact(self, digest: Digest) -> Artifact:
        """Open an artifact."""
        from maskreg.artifact.reader import Artifact

        return Artifact.open(self.store, digest)

    def _seen(self, witness: Witness, ref: Ref, head: RefEntry | None) -> RefEntry | None:
        uuid = self.uuid
        witness.check_registry(uuid)
        if not uuid:
            self.trust.check_latest(ref, head)
            return head
        if head is not None:
            # First, so that an unsigned entry is refused as that, and not as something to accept.
            self.trust.check(head)
        known, since = witness.compare(self.refs, uuid, ref, head)
        self.trust.check_latest(ref, since[-1] if since else None)
        if not since:
            return None
        if known is None or known.n < since[-1].n:
            witness.remember(uuid, since[-1])
        return since[-1]

    def _indexed(self, ref: Ref, head: RefEntry | None) -> RefEntry | None:
        # A later entry that the catalog knows was written since the listing, or is lost from the store.
        for _ in range(_LOOKS):
            known = self.index.number(ref)
            if known <= (head.n if head else 0):
                return head
            head = self.refs.head(ref)
        raise lost({ref: head.n if head else 0}, {ref: known})[ref]

    def _live(self, ref: Ref, head: RefEntry | None) -> RefEntry:
        if head is None:
            raise self._unknown(ref)
        if head.deleted:
            raise NotFoundError(
                f"{ref} was removed from {self.name} by {head.by} at {head.at:%Y-%m-%d %H:%M:%S} UTC",
                removed=ref,
                remote=self.remote_name,
            )
        return head

    def _unknown(self, ref: Ref) -> NotFoundError:
        tags = list(islice(self.refs.tags(), _MAX_COMPARED + 1))
        if len(tags) > _MAX_COMPARED:
            tags = list(islice(self.refs.tags(ref.project), _MAX_COMPARED))
        similar = similar_names(tags, ref, is_set=self._is_set)
        remark = f"; similar: {', '.join(similar)}" if similar else ""
        # The name alone, so that the list shows it with all its tags and in all projects.
        facts = {"similar": Ref.parse(similar[0]).name} if similar else {}
        message = f"there is no {ref} in {self.name} ({self.url}){remark}"
        return NotFoundError(message, **facts, remote=self.remote_name)

    def _is_set(self, tag: Ref) -> bool:
        # A damaged tag counts: a listing says what is wrong with it.
        try:
            head = self.refs.head(tag)
        except CorruptError:
            return True
        return head is not None and not head.deleted

    @property
    def remote_name(self) -> str:
        """The name of this remote, as a fact of errors; empty for a local registry."""
        return "" if self.root is not None else self.name

    # Writing

    def publish(
        self,
        ref: Ref,
        digest: Digest,
        *,
        card: Card,
        after: RefEntry | EllipsisType | None = ...,
        origin: str = "",
        immutable: bool | None = None,
        by: str = "",
    ) -> RefEntry:
        """Point a tag at an artifact of this registry."""
        latest = self.head(ref) if isinstance(after, EllipsisType) else after
        check_movable(latest, digest)
        with self.keeping(digest):
            return self.append(ref, digest, card=card, after=latest, origin=origin, immutable=immutable, by=by)

    def keeping(self, digest: Digest) -> AbstractContextManager[None]:
        """Keep the artifact's objects from garbage collection while a tag is set to it, in the ``with`` block."""
        from maskreg.registry.settle import in_place

        return in_place(self.store, digest)

    def append(
        self,
        ref: Ref,
        digest: Digest | None,
        *,
        card: Card,
        after: RefEntry | None,
        origin: str = "",
        action: str = "publish",
        immutable: bool | None = None,
        by: str = "",
    ) -> RefEntry:
        """Write the next entry of a tag's log, and index it; does not look at the artifact's objects.

        An entry that would repeat the latest one is not written.
        """
        self.ensure_uuid()
        if immutable is None:
            immutable = ref.project in self.immutable_projects and ref.tag != DEFAULT_TAG
        is_same = after is not None and (after.digest, after.card) == (digest, card) and after.immutable >= immutable
        if is_same and after is not None and (head := self.refs.head(ref)) is not None and head.id == after.id:
            return head
        entry = self.refs.append(
            ref, after=after, digest=digest, card=card, by=by or self.by, origin=origin, immutable=immutable
        )
        # An equivalent entry by another writer counts as written, and can be unsigned.
        self.trust.check(entry)
        if self.witness is not None:
            self.witness.check_registry(self.uuid)
            self.witness.remember(self.uuid, entry)
        self.index.note(entry, action)
        return entry


def similar_names(tags: Iterable[Ref], ref: Ref, *, is_set: Callable[[Ref], bool] = lambda tag: True) -> list[str]:
    """At most three of ``tags`` that ``ref`` might have been meant to be, the most similar first."""
    names = {str(tag) for tag in tags}
    # The same name under another tag or in another project is a better guess than a similar spelling.
    same = sorted(n for n in names if n.rpartition("/")[2].partition(":")[0] == ref.name)
    unpinned = str(Ref(ref.project, ref.name, ref.tag))
    alike = difflib.get_close_matches(unpinned, sorted(names), n=_MAX_CANDIDATES, cutoff=0.6)
    candidates = list(dict.fromkeys([*same, *alike]))[:_MAX_CANDIDATES]
    return list(islice((name for name in candidates if is_set(Ref.parse(name))), _MAX_SUGGESTIONS))

"""Who reads which artifact: readers of a project with a tag that points, or ever pointed, to it.

Back references say where to look, and the entry itself decides: every writer of a project can leave a back reference to
any artifact, and it grants nothing until the ref log of the project has the entry. Entries are never replaced, so what
was found stays true: it is cached, and the store is asked again only for a principal whom it does not let in.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Generic, TypeVar

from cachetools import LRUCache

from maskreg.artifact.layout import ARTIFACTS, MANIFEST, artifact_prefix
from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import DataError, NotAllowedError, NotFoundError
from maskreg.registry import Registry
from maskreg.registry.tags import ever_named
from maskreg.service.auth.roles import EVERY_PROJECT, ROLE_HINT, Principal, Role
from maskreg.store.base import ObjectInfo
from maskreg.store.entry import NAMES, BackReference
from maskreg.store.reflog import RefEntry

_REMEMBERED = 4_096

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """At most ``most`` values by key; the least recently used one goes first."""

    def __init__(self, most: int) -> None:
        self._values: LRUCache[Key, Value] = LRUCache(most)
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value of a key; None without one."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> Value:
        """Keep a value in place of an earlier one, and give it back."""
        with self._lock:
            self._values[key] = value
        return value

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None


def visible(query: Query, principal: Principal) -> Query:
    """A query that gives nothing which the principal cannot read."""
    hidden = query.hidden | principal.deleted
    if principal.role(EVERY_PROJECT) >= Role.READER:
        return replace(query, hidden=hidden)
    return replace(query, projects=frozenset(readable(principal)), hidden=hidden)


def may_read(registry: Registry, principal: Principal, digest: Digest) -> bool:
    """Whether a principal reads an artifact; the server's admins also read artifacts without a name."""
    if principal.server_role >= Role.ADMIN:
        return True
    if registry.page(visible(Query(digest=digest, limit=1), principal)):
        return True
    return any(principal.role(ref.project) >= Role.READER for ref in ever_named(registry, digest))


def check_may_read(registry: Registry, principal: Principal, digest: Digest) -> None:
    """Refuse an artifact that is missing, and one that a principal cannot read as if it were."""
    manifest = f"{artifact_prefix(digest)}{MANIFEST}"
    if not may_read(registry, principal, digest) or registry.store.head(manifest) is None:
        raise NotFoundError(f"there is no artifact {digest.short}")


def check_may_verify(registry: Registry, principal: Principal, digest: Digest) -> None:
    """Check that a principal can have the server verify an artifact: a writer of a project that names it."""
    writes = any(principal.role(ref.project) >= Role.WRITER for ref in ever_named(registry, digest))
    if principal.server_role < Role.WRITER and not writes:
        raise NotAllowedError(
            f"having the server verify {digest.short} needs the role writer in a project that names it", hint=ROLE_HINT
        )


class NamedArtifacts:
    """Where the artifacts of a registry are named. Safe to use from many threads."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: Remembered[Digest, frozenset[str]] = Remembered(_REMEMBERED)

    def known(self, digest: Digest) -> frozenset[str]:
        """Projects in the cache with a tag that points or pointed to an artifact; nothing is read."""
        return self._known.get(digest) or frozenset()

    def projects(self, digest: Digest, principal: Principal) -> frozenset[str]:
        """Projects with a tag that points or pointed to an artifact; the cached ones where they let a principal in."""
        known = self.known(digest)
        if any(principal.role(project) >= Role.READER for project in known):
            return known
        # Where two threads find something at once, one of them is forgotten, and asks the store again.
        return self._known.put(digest, known | {ref.project for ref in ever_named(self._registry, digest)})

    def add(self, entry: RefEntry) -> None:
        """Take in an entry of a log that was just read or written."""
        if entry.digest is not None and entry.project not in (known := self.known(entry.digest)):
            self._known.put(entry.digest, known | {entry.project})

    def of_projects(self, prefix: str, principal: Principal) -> Iterator[ObjectInfo]:
        """Objects below a prefix that has a folder for each project, of the readable projects, in key order."""
        store = self._registry.store
        if principal.server_role >= Role.READER:
            yield from store.list(prefix)
            return
        for project in sorted(readable(principal), key=lambda project: f"{project}/"):
            yield from store.list(f"{prefix}{project}/")

    def artifacts(self, principal: Principal) -> Iterator[ObjectInfo]:
        """The objects of all artifacts that a tag of a readable project points to, in key order."""
        store = self._registry.store
        if principal.server_role >= Role.READER:
            yield from store.list(ARTIFACTS)
            return
        for digest in self._live(principal):
            yield from store.list(f"{ARTIFACTS}{digest.hex}/")

    def names(self, principal: Principal, digests: Iterable[Digest] | None = None) -> Iterator[ObjectInfo]:
        """The back references of readable projects to these artifacts, or to all."""
        if principal.server_role >= Role.READER and digests is None:
            yield from self._registry.store.list(NAMES)
            return
        for digest in self._live(principal) if digests is None else digests:
            for info in self._registry.store.list(f"{NAMES}{digest.hex}/"):
                project = self.named_by(info)
                if project and principal.role(project) >= Role.READER:
                    yield info

    def named_by(self, info: ObjectInfo) -> str:
        """The project of a back reference; empty when it cannot be read."""
        reference = BackReference.of(info)
        if reference is None:
            return ""
        try:
            return reference.read(self._registry.store).project
        except (DataError, NotFoundError):
            return ""

    def _live(self, principal: Principal) -> list[Digest]:
        mine = readable(principal)
        entries = (entry for entry in self._registry.refs.heads([]) if entry.project in mine)
        return sorted({entry.digest for entry in entries if entry.digest is not None})


def readable(principal: Principal) -> set[str]:
    """The projects that a principal can read, for one without a role in every project."""
    projects = {*principal.grants, *principal.public} - {EVERY_PROJECT}
    return {project for project in projects if principal.role(project) >= Role.READER}

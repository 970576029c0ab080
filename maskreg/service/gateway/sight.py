"""Which projects have, or had, a tag that points to an artifact: who reads one of them may read the artifact.

Back references say where to look, and the entry itself decides: anybody who may write to a project can leave a back
reference to any artifact, and it grants nothing until the ref log of the project has the entry.

What was found stays true, because entries are never replaced. So it is remembered, and the store is asked again only
for somebody whom it does not let in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from maskreg.artifact.layout import ARTIFACTS
from maskreg.digest import Digest
from maskreg.errors import DataError, NotFoundError
from maskreg.registry import Registry
from maskreg.registry.pointers import ever_named
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.remembered import Remembered
from maskreg.store.backrefs import NAMES, BackReference
from maskreg.store.base import ObjectInfo
from maskreg.store.reflog import RefEntry

_REMEMBERED = 4_096


class Sight:
    """Where the artifacts of a registry are named. Safe to use from many threads."""

    def __init__(self, registry: Registry) -> None:
        """Look into this registry; nothing is read yet."""
        self._registry = registry
        self._known: Remembered[Digest, frozenset[str]] = Remembered(_REMEMBERED)

    def known(self, digest: Digest) -> frozenset[str]:
        """Projects that are remembered to have a tag that points or pointed to an artifact; nothing is read."""
        return self._known.get(digest) or frozenset()

    def projects(self, digest: Digest, principal: Principal) -> frozenset[str]:
        """Projects with a tag that points or pointed to an artifact; of those that are known, if one lets them in."""
        known = self.known(digest)
        if any(principal.role(project) >= Role.READER for project in known):
            return known
        # Where two threads find something at once, one of them is forgotten, and asks the store again.
        return self._known.put(digest, known | {ref.project for ref in ever_named(self._registry, digest)})

    def saw(self, entry: RefEntry) -> None:
        """Take in an entry of a log that was just read or written."""
        if entry.digest is not None:
            known = self.known(entry.digest)
            if entry.project not in known:
                self._known.put(entry.digest, known | {entry.project})

    def of_projects(self, prefix: str, principal: Principal) -> Iterator[ObjectInfo]:
        """Objects below a prefix that has a folder for each project, of those that somebody may read, in key order."""
        store = self._registry.store
        if principal.server_role >= Role.READER:
            yield from store.list(prefix)
            return
        for project in sorted(_readable(principal), key=lambda project: f"{project}/"):
            yield from store.list(f"{prefix}{project}/")

    def artifacts(self, principal: Principal) -> Iterator[ObjectInfo]:
        """The objects of all artifacts that a tag of a project points to which somebody may read, in key order."""
        store = self._registry.store
        if principal.server_role >= Role.READER:
            yield from store.list(ARTIFACTS)
            return
        for digest in self._live(principal):
            yield from store.list(f"{ARTIFACTS}{digest.hex}/")

    def names(self, principal: Principal, digests: Iterable[Digest] | None = None) -> Iterator[ObjectInfo]:
        """The back references to these artifacts, or to all, that are of projects which somebody may read."""
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
        readable = _readable(principal)
        entries = (entry for entry in self._registry.refs.heads([]) if entry.project in readable)
        return sorted({entry.digest for entry in entries if entry.digest is not None})


def _readable(principal: Principal) -> set[str]:
    return {project for project in {*principal.grants, *principal.public} if principal.role(project) >= Role.READER}

"""The objects of the served store, as a principal sees and reads them: the policy put to work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from maskreg.artifact.layout import ARTIFACTS, MANIFEST
from maskreg.digest import Digest
from maskreg.errors import NotAllowedError, NotFoundError
from maskreg.registry import Registry
from maskreg.registry.keys import KEYS
from maskreg.registry.settle import MARKERS, lift_dead
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.gateway.incoming import Incoming, record
from maskreg.service.gateway.policy import PROBE, Action, Key, Kind, allows, check, parse_key
from maskreg.service.gateway.visibility import NamedArtifacts
from maskreg.store.base import ObjectInfo, check_key, check_prefix
from maskreg.store.entry import NAMES, REFS, RefEntry

_LINKS = 1_024
"""In one listing; each takes a fifth of a millisecond to sign."""


class Objects:
    """The objects of a registry, behind the policy. Safe to use from many threads."""

    def __init__(self, registry: Registry, accounts: Accounts) -> None:
        self.registry = registry
        self.store = registry.store
        self._named = NamedArtifacts(registry)
        self.incoming = Incoming(registry, accounts, self._named)

    def permit(self, text: str, action: Action, principal: Principal) -> Key:
        """Parse a key, and check that the policy allows the action."""
        key = parse_key(check_key(text))
        check(key, action, principal, self._projects(key, action, principal))
        if key.kind is Kind.OBJECT and action is Action.SEND:
            self.incoming.check_announced(key, principal)
        return key

    def head(self, text: str, principal: Principal) -> tuple[Key, ObjectInfo]:
        """An object's size and time; a writer also sees them for objects that they have sent."""
        key = parse_key(check_key(text))
        if not (key.kind in (Kind.OBJECT, Kind.MANIFEST) and self.incoming.shows_name(key, principal)):
            check(key, Action.READ, principal, self._projects(key, Action.READ, principal))
        info = self.store.head(text)
        if info is None:
            raise NotFoundError(f"there is no {text}")
        return key, info

    def sha256(self, key: Key) -> Digest | None:
        """The digest of an object's bytes, where its key tells; None elsewhere."""
        if key.kind is Kind.MANIFEST:
            return key.digest
        return Digest(self.incoming.expected(key).sha256) if key.kind is Kind.OBJECT else None

    def get(self, key: Key) -> bytes:
        """An object's bytes."""
        if key.kind is Kind.IDENTITY:
            # A service has one before anything is pushed.
            self.registry.ensure_uuid()
        data = self.store.get(key.key, max_bytes=key.max_bytes)
        if key.kind is Kind.ENTRY:
            self._named.add(RefEntry.parse(key.key, data))
        return data

    def list(self, prefix: str, principal: Principal) -> Iterator[ObjectInfo]:
        """Objects below a prefix that a principal sees, in key order; nothing where nothing is visible."""
        check_prefix(prefix)
        if prefix.startswith(ARTIFACTS) and prefix != ARTIFACTS:
            return self._artifact(prefix, principal)
        if prefix == ARTIFACTS:
            return self._named.artifacts(principal)
        if prefix.startswith(NAMES):
            digests = None if prefix == NAMES else [Digest(f"sha256:{prefix.removeprefix(NAMES)[:-1]}")]
            return self._named.names(principal, digests)
        if prefix in (REFS, KEYS):
            return self._named.of_projects(prefix, principal)
        return self._others(prefix, principal)

    def read_link(self, key: Key) -> str:
        """A link from which an object can be read without a token; empty where there are none."""
        return self.store.links.read_link(key.key) if self.store.links is not None else ""

    def read_links(self, prefix: str, principal: Principal) -> Callable[[str], str]:
        """What returns a link to read an object, by its key, or an empty text where there is none.

        Only objects of an artifact that the principal can read get one, and at most ``_LINKS`` in a listing.
        """
        digest = parse_key(f"{prefix}{MANIFEST}").digest
        if digest is None or not allows(Kind.OBJECT, Action.READ, principal, self._named.projects(digest, principal)):
            return no_links
        left = iter(range(_LINKS))

        def link(text: str) -> str:
            key = parse_key(text)
            is_below = key.kind is Kind.OBJECT and key.digest == digest
            return self.read_link(key) if is_below and next(left, None) is not None else ""

        return link

    def delete(self, key: Key, principal: Principal) -> None:
        """Delete an object that the policy lets a principal delete."""
        if key.kind is not Kind.MARKER or principal.server_role >= Role.ADMIN:
            self.store.delete([key.key])
            return
        verdicts = lift_dead(self.store, [key.key])
        if not all(verdict.over for verdict in verdicts.values()):
            raise NotAllowedError(f"{key.key}: the garbage collection that wrote this marker is not over")

    def _others(self, prefix: str, principal: Principal) -> Iterator[ObjectInfo]:
        kind, projects = Kind.FOREIGN, [""]
        if prefix.startswith((REFS, KEYS)):
            kind, projects = Kind.ENTRY, [prefix.split("/")[1]]
        elif prefix.startswith(MARKERS) and prefix != MARKERS:
            kind = Kind.MARKER
        elif prefix.startswith(PROBE) and prefix != PROBE:
            kind = Kind.PROBE
        if allows(kind, Action.READ, principal, projects):
            yield from (i for i in self.store.list(prefix) if parse_key(i.key).kind is not Kind.PRIVATE)

    def _artifact(self, prefix: str, principal: Principal) -> Iterator[ObjectInfo]:
        key = parse_key(f"{prefix}{MANIFEST}")
        if key.digest is None:
            # Not below the folder of an artifact.
            if allows(Kind.FOREIGN, Action.READ, principal):
                yield from self.store.list(prefix)
            return
        projects = self._named.projects(key.digest, principal)
        if allows(Kind.OBJECT, Action.READ, principal, projects):
            yield from self.store.list(prefix)
        elif allows(Kind.OBJECT, Action.SEND, principal):
            sent = self.incoming.sent_by(key.digest, principal)
            for info in self.store.list(prefix):
                if record(key.digest, principal, parse_key(info.key).name) in sent:
                    yield info

    def _projects(self, key: Key, action: Action, principal: Principal) -> frozenset[str] | tuple[str, ...]:
        if key.kind in (Kind.OBJECT, Kind.MANIFEST) and action is Action.READ:
            assert key.digest is not None  # it belongs to an artifact
            return self._named.projects(key.digest, principal)
        if key.kind is Kind.BACK_REFERENCE:
            if action is Action.READ:
                info = self.store.head(key.key)
                return (self._named.named_by(info),) if info else ()
            # Which project it is of stands inside.
            return tuple(principal.grants)
        return (key.project,)


def no_links(_: str) -> str:
    """No link to any object."""
    return ""

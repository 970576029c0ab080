"""The objects of the served store, as somebody may read and write them: the policy put to work.

An artifact's objects are accepted only when they are what its manifest says, so the manifest comes first, as an
announcement that no reader sees::

    PUT announced/sha256/<hex>/manifest.json      hashes to <hex>, parses
    PUT artifacts/sha256/<hex>/<key>              has the size and sha256 that the manifest states
    PUT artifacts/sha256/<hex>/manifest.json      hashes to <hex>; the announcement goes
    PUT refs/<project>/.../<n>.json               the log's next entry, by its sender, of a whole artifact

Whoever knows a digest does not know the artifact. So an artifact that is named only in projects which a writer cannot
read shows nothing to that writer, who gets to name it by sending all of its objects again; a small record is kept of
each.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

from maskreg.artifact.layout import ARTIFACTS, MANIFEST, artifact_prefix
from maskreg.artifact.presence import listing
from maskreg.digest import Digest
from maskreg.errors import CorruptError, NotAllowedError, NotFoundError, QuotaError, UsageError
from maskreg.registry import Registry
from maskreg.registry.admission import admit, admit_key
from maskreg.registry.settling.markers import MARKERS, lift_dead
from maskreg.registry.trust.document import KEYS
from maskreg.service.access import check_role
from maskreg.service.accounts.roles import Principal, Role
from maskreg.service.manifests import Manifests, announcement, unknown
from maskreg.service.policy import PRESENTED, PROBE, UPLOADS, Action, Key, Kind, allows, check, parse_key
from maskreg.service.sight import Sight
from maskreg.service.tombstones import check_tombstone
from maskreg.store.backrefs import NAMES, BackReference
from maskreg.store.base import ObjectInfo
from maskreg.store.entry import REFS, RefEntry
from maskreg.store.keys import check_key, check_prefix
from maskreg.store.s3 import S3Store
from maskreg.store.s3_links import Link, promote, reading, uploading
from maskreg.words import human_bytes

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Object

_KNOWING = 4_096


_UPLOADS_BYTES = 1 << 30


class Objects:
    """The objects of a registry, behind the policy. Safe to use from many threads."""

    def __init__(
        self,
        registry: Registry,
        ensure: Callable[[RefEntry, Principal], None],
        stage: Callable[[Digest, int, Principal], None],
        accepted: Callable[[RefEntry], None],
    ) -> None:
        """Serve a registry; nothing is read yet.

        Args:
            registry: the registry.
            ensure: called with each new entry and its sender; makes a project that is not there yet, or raises.
            stage: called with each artifact that a writer begins to send, its size in bytes and its sender; raises
                where there is no room for it.
            accepted: called with each entry that was written.
        """
        self.registry = registry
        self._ensure, self._stage, self._accepted = ensure, stage, accepted
        self.store = registry.store
        self.sight = Sight(registry)
        self._manifests = Manifests(registry.store)
        # Who was found to know an artifact's manifest, as digest and account; it stays true.
        self._knowing: OrderedDict[tuple[Digest, str], None] = OrderedDict()

    # Reading

    def permit(self, text: str, action: Action, principal: Principal) -> Key:
        """Parse a key that somebody wants to do something with.

        Raises:
            UsageError: it is not a key.
            NotFoundError, NotAllowedError: the policy does not allow it.
        """
        key = parse_key(check_key(text))
        check(key, action, principal, self._projects(key, action, principal))
        if key.kind is Kind.OBJECT and action is Action.SEND:
            self._check_announced(key, principal)
        return key

    def head(self, text: str, principal: Principal) -> tuple[Key, ObjectInfo]:
        """An object's size and time; a writer sees those of an artifact that is on its way too.

        Raises:
            NotFoundError: there is none, for this principal.
        """
        key = parse_key(check_key(text))
        if not (key.kind in (Kind.OBJECT, Kind.MANIFEST) and self._sees_name(key, principal)):
            check(key, Action.READ, principal, self._projects(key, Action.READ, principal))
        info = self.store.head(text)
        if info is None:
            raise NotFoundError(f"there is no {text}")
        return key, info

    def sha256(self, key: Key) -> Digest | None:
        """The digest of an object's bytes, where its key tells; None elsewhere."""
        if key.kind is Kind.MANIFEST:
            return key.digest
        return Digest(self.expected(key).sha256) if key.kind is Kind.OBJECT else None

    def get(self, key: Key) -> bytes:
        """An object's bytes.

        Raises:
            NotFoundError: there is none.
        """
        if key.kind is Kind.IDENTITY:
            # A service has one before anything is pushed.
            self.registry.ensure_uuid()
        data = self.store.get(key.key, max_bytes=key.max_bytes)
        if key.kind is Kind.ENTRY:
            self.sight.saw(RefEntry.parse(key.key, data))
        return data

    def list(self, prefix: str, principal: Principal) -> Iterator[ObjectInfo]:
        """Objects below a prefix that somebody may see, in key order; nothing where nothing is visible.

        Raises:
            UsageError: not a prefix.
        """
        check_prefix(prefix)
        if prefix.startswith(ARTIFACTS) and prefix != ARTIFACTS:
            return self._artifact(prefix, principal)
        if prefix == ARTIFACTS:
            return self.sight.artifacts(principal)
        if prefix.startswith(NAMES):
            digests = None if prefix == NAMES else [Digest(f"sha256:{prefix.removeprefix(NAMES)[:-1]}")]
            return self.sight.names(principal, digests)
        if prefix in (REFS, KEYS):
            return self.sight.of_projects(prefix, principal)
        return self._others(prefix, principal)

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
        projects = self.sight.projects(key.digest, principal)
        if allows(Kind.OBJECT, Action.READ, principal, projects):
            yield from self.store.list(prefix)
        elif allows(Kind.OBJECT, Action.SEND, principal):
            presented = self._presented(key.digest, principal) if projects else None
            for info in self.store.list(prefix):
                if presented is None or _record(key.digest, principal, parse_key(info.key).name) in presented:
                    yield info

    # Writing

    def expected(self, key: Key) -> Object:
        """What the manifest of an artifact says about an object.

        Raises:
            UsageError: the manifest was not sent yet.
            CorruptError: the manifest lists no such object.
        """
        return self._manifests.expected(key)

    def accept(self, key: Key, sent: bytes, digest: Digest, principal: Principal, *, create: bool) -> bool:
        """Write what somebody sent and may write, after the checks of its kind.

        Args:
            key: the permitted key.
            sent: the bytes; any buffer.
            digest: their sha256.
            principal: who sent them.
            create: only if there is no such object.

        Returns:
            Whether it was written; False when there is one already.

        Raises:
            DataError: the bytes are not what the key may hold.
            NotAllowedError: the sender's role is too low for this entry.
        """
        # Large objects are compared by their digest, and never copied into memory here.
        data = b"" if key.kind in (Kind.OBJECT, Kind.FOREIGN) else bytes(sent)
        match key.kind:
            case Kind.ENTRY:
                return self._accept_entry(key, data, principal)
            case Kind.IDENTITY:
                # The server makes its own; whoever asked reads it back.
                self.registry.ensure_uuid()
                return False
            case Kind.ANNOUNCED | Kind.MANIFEST:
                assert key.digest is not None  # both belong to an artifact
                self._manifests.load(key.digest, data)
                self._stage_new(key.digest, self._manifests.size(key.digest) + len(data), principal)
            case Kind.OBJECT:
                entry = self.expected(key)
                if (entry.size, entry.sha256) != (len(sent), digest):
                    raise CorruptError(key.key, "its bytes are not what the manifest says")
            case Kind.BACK_REFERENCE:
                return self._accept_back_reference(key, data, principal)
            case Kind.KEY:
                return admit_key(self.registry, key.key, data, by=principal.name)
        if create:
            return self.store.create(key.key, sent)
        self.store.put(key.key, sent)
        self._note_sent(key, principal)
        return True

    def _stage_new(self, digest: Digest, size: int, principal: Principal) -> None:
        named = self.sight.projects(digest, principal)
        if not any(principal.role(project) >= Role.WRITER for project in named):
            self._stage(digest, size, principal)

    def read_link(self, key: Key) -> str:
        """A link from which an object can be read without a token; empty where there are none."""
        return reading(self.store, key.key) if isinstance(self.store, S3Store) else ""

    def upload_link(self, key: Key, stated: tuple[int, Digest], principal: Principal) -> tuple[str, Link] | None:
        """Where to upload an object of an artifact, and the number of the upload; None where it goes to the server.

        Raises:
            CorruptError: it is not what the manifest says.
            QuotaError: too much waits already that the sender has uploaded and not finished.
        """
        if key.kind is not Kind.OBJECT or not isinstance(self.store, S3Store):
            return None
        entry = self.expected(key)
        assert key.digest is not None  # it belongs to an artifact
        if (entry.size, entry.sha256) != stated:
            raise CorruptError(key.key, "its size and sha256 are not what the manifest says")
        folder = _upload("", principal)
        waiting = sum(info.size for info in self.store.list(folder))
        if waiting + entry.size > 2 * self._manifests.size(key.digest) + _UPLOADS_BYTES:
            raise QuotaError(
                f"{human_bytes(waiting)} that {principal.name} uploaded wait to be finished",
                hint="push again in an hour, when they are gone",
            )
        number = uuid4().hex
        return number, uploading(self.store, _upload(number, principal), *stated)

    def finish_upload(self, key: Key, number: str, principal: Principal) -> None:
        """Take an upload for an object, once it is there and is what the manifest says.

        Raises:
            NotFoundError: nothing was uploaded.
            CorruptError: it is something else.
            UsageError: this server takes no uploads elsewhere.
        """
        if key.kind is not Kind.OBJECT or not isinstance(self.store, S3Store):
            raise UsageError(f"{key.key} is not uploaded by a link", hint="PUT it")
        entry = self.expected(key)
        promote(self.store, _upload(number, principal), key.key, entry.size, Digest(entry.sha256))
        self._note_sent(key, principal)

    def delete(self, key: Key, principal: Principal) -> None:
        """Delete an object that somebody may delete.

        Raises:
            NotAllowedError: a marker of a garbage collection that is not over.
        """
        if key.kind is not Kind.MARKER or principal.server_role >= Role.ADMIN:
            self.store.delete([key.key])
            return
        verdicts = lift_dead(self.store, [key.key])
        if not all(verdict.over for verdict in verdicts.values()):
            raise NotAllowedError(f"{key.key}: the garbage collection that wrote this marker is not over")

    def _accept_entry(self, key: Key, data: bytes, principal: Principal) -> bool:
        entry = RefEntry.parse(key.key, data)
        if entry.by != principal.name:
            raise UsageError(
                f"{key.key}: it says that it is by {entry.by!r}, and {principal.name} sent it",
                hint="maskreg whoami says under which name this service knows you",
            )
        before = self.registry.refs.peek(entry.ref, entry.n - 1) if entry.n > 1 else None
        check_role(principal, entry.project, Role.ADMIN if entry.deleted else Role.WRITER)
        check_tombstone(self.registry, entry.ref, before, principal)
        self._ensure(entry, principal)
        if entry.digest is not None:
            self._check_knows(entry.digest, principal)
        if not admit(self.registry, entry):
            return False
        self.sight.saw(entry)
        if entry.digest is not None:
            self.store.delete(self._presented(entry.digest, principal))
        self._accepted(entry)
        return True

    def _check_knows(self, digest: Digest, principal: Principal) -> None:
        projects = self.sight.projects(digest, principal)
        if not projects or allows(Kind.OBJECT, Action.READ, principal, projects):
            return
        presented = self._presented(digest, principal)
        if any(_record(digest, principal, name) not in presented for name in listing(self.store, digest)):
            raise NotAllowedError(
                f"{digest.short} belongs to a project that {principal.name} may not read",
                hint="push it with all the parts that it was made with",
            )

    def _accept_back_reference(self, key: Key, data: bytes, principal: Principal) -> bool:
        reference = BackReference.of(ObjectInfo(key.key, len(data), self.store.clock()))
        assert reference is not None  # its key says so
        ref = reference.parse(data)
        check(key, Action.SEND, principal, (ref.project,))
        self.store.put(key.key, data)
        return True

    def _note_sent(self, key: Key, principal: Principal) -> None:
        if key.kind is Kind.MANIFEST:
            assert key.digest is not None  # it belongs to an artifact
            self.store.delete([announcement(key.digest)])
        if key.kind in (Kind.OBJECT, Kind.MANIFEST):
            assert key.digest is not None  # it belongs to an artifact
            projects = self.sight.projects(key.digest, principal)
            if projects and not allows(Kind.OBJECT, Action.READ, principal, projects):
                self.store.put(_record(key.digest, principal, key.name), b"")

    # What is known

    def _projects(self, key: Key, action: Action, principal: Principal) -> frozenset[str] | tuple[str, ...]:
        if key.kind in (Kind.OBJECT, Kind.MANIFEST) and action is Action.READ:
            assert key.digest is not None  # it belongs to an artifact
            return self.sight.projects(key.digest, principal)
        if key.kind is Kind.BACK_REFERENCE:
            if action is Action.READ:
                info = self.store.head(key.key)
                return (self.sight.named_by(info),) if info else ()
            # Which project it is of stands inside.
            return tuple(principal.grants)
        return (key.project,)

    def _check_announced(self, key: Key, principal: Principal) -> None:
        # What a manifest says of its objects, and that it is here, is for who reads the artifact or sent the manifest.
        assert key.digest is not None  # it belongs to an artifact
        knower = (key.digest, principal.id)
        if knower in self._knowing:
            return
        if self.store.head(announcement(key.digest)) is None:
            projects = self.sight.projects(key.digest, principal)
            if not projects:
                if self.store.head(artifact_prefix(key.digest) + MANIFEST) is None:
                    raise unknown(key.digest)
                return
            if not allows(Kind.OBJECT, Action.READ, principal, projects):
                manifest = _record(key.digest, principal, MANIFEST)
                if manifest not in self._presented(key.digest, principal):
                    raise unknown(key.digest)
        self._knowing[knower] = None
        if len(self._knowing) > _KNOWING:
            self._knowing.popitem(last=False)

    def _sees_name(self, key: Key, principal: Principal) -> bool:
        # What a writer sent can be seen by name and size, before it can be read.
        assert key.digest is not None  # it belongs to an artifact
        if not allows(Kind.OBJECT, Action.SEND, principal):
            return False
        projects = self.sight.projects(key.digest, principal)
        return not projects or _record(key.digest, principal, key.name) in self._presented(key.digest, principal)

    def _presented(self, digest: Digest, principal: Principal) -> frozenset[str]:
        return frozenset(info.key for info in self.store.list(_record(digest, principal, "")))


def _upload(number: str, principal: Principal) -> str:
    return f"{UPLOADS}{_sender(principal)}/{number}"


def _sender(principal: Principal) -> str:
    return hashlib.sha256(principal.name.encode()).hexdigest()[:32]


def _record(digest: Digest, principal: Principal, name: str) -> str:
    prefix = f"{PRESENTED}{digest.hex}/{_sender(principal)}/"
    return prefix + hashlib.sha256(name.encode()).hexdigest()[:32] if name else prefix

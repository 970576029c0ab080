"""What clients send to the served store: accepted only when it is what its key can hold.

An artifact's objects are accepted only when they are what its manifest says, so the manifest comes first, as an
announcement that no reader sees::

    PUT announced/sha256/<hex>/manifest.json      hashes to <hex>, parses, has room in some project of its sender
    PUT artifacts/sha256/<hex>/<key>              has the size and sha256 that the manifest states
    PUT artifacts/sha256/<hex>/manifest.json      hashes to <hex>; the announcement goes
    PUT refs/<project>/.../<n>.json               the log's next entry, by its sender, of a whole artifact

To know a digest is not to have the artifact: a writer sees, completes and names an artifact only where they can read it
or have sent its objects themselves. So an empty record is kept of each object that was sent, until its sender sets a
name::

    sent/<sender>/<hex of the artifact>/<hash of the object's key>       also: size-<bytes>, of the whole artifact
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from uuid import uuid4

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.manifest import Object, load_manifest
from maskreg.artifact.presence import listing
from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, NotFoundError, QuotaError, UsageError
from maskreg.limits import LIMITS
from maskreg.registry import Registry
from maskreg.registry.admission import admit, admit_key
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import Principal, Role, check_role
from maskreg.service.gateway.admission import check_quota, check_room_somewhere, check_tombstone
from maskreg.service.gateway.policy import ANNOUNCED, SENT, UPLOADS, Action, Key, Kind, allows, check
from maskreg.service.gateway.verification import request_first_check
from maskreg.service.gateway.visibility import NamedArtifacts, Remembered
from maskreg.store.base import LINK_SECONDS, Link, ObjectInfo
from maskreg.store.entry import BackReference, RefEntry
from maskreg.words import human_bytes
from maskreg.workspace.verbs.log import changes

UPLOADS_BYTES = 1 << 30
"""Bytes of unfinished uploads of one account, beyond twice the artifact."""
_MANIFESTS = 16
_ANNOUNCERS = 4_096

_LOGGED = {"annotated": "annotate", "fixed": "annotate", "removed": "remove", "restored": "restore"}
# What the audit log calls a change of a tag; any other is "set tag".


class Incoming:
    """Takes what is sent for a registry, after the policy. Safe to use from many threads."""

    def __init__(self, registry: Registry, accounts: Accounts, named: NamedArtifacts) -> None:
        self._registry, self._store, self._accounts, self._named = registry, registry.store, accounts, named
        self._manifests: Remembered[Digest, Mapping[str, Object]] = Remembered(_MANIFESTS)
        # Accounts that can send objects of an artifact; that stays true.
        self._announcers: Remembered[tuple[Digest, str], bool] = Remembered(_ANNOUNCERS)

    def accept(self, key: Key, sent: bytes, digest: Digest, principal: Principal, *, create: bool) -> bool:
        """Write what a client sent and the policy allows, after the checks of its kind; False where there is one."""
        match key.kind:
            case Kind.ENTRY:
                return self._accept_entry(key, bytes(sent), principal)
            case Kind.IDENTITY:
                # The server makes its own; the client reads it back.
                self._registry.ensure_uuid()
                return False
            case Kind.KEY:
                return admit_key(self._registry, key.key, bytes(sent), by=principal.name)
            case Kind.BACK_REFERENCE:
                reference = BackReference.of(ObjectInfo(key.key, len(sent), self._store.clock()))
                assert reference is not None  # its key says so
                check(key, Action.SEND, principal, (reference.parse(bytes(sent)).project,))
                create = False
            case Kind.ANNOUNCED | Kind.MANIFEST:
                self._check_room(_digest(key), bytes(sent), principal)
            case Kind.OBJECT:
                # Large objects are compared by their digest, and never copied into memory here.
                entry = self.expected(key)
                if (entry.size, entry.sha256) != (len(sent), digest):
                    raise CorruptError(key.key, "its bytes are not what the manifest says")
        if create:
            return self._store.create(key.key, sent)
        self._store.put(key.key, sent)
        if key.kind is Kind.MANIFEST:
            self._store.delete([_announcement(_digest(key))])
        self._record(key, principal)
        return True

    def _check_room(self, digest: Digest, data: bytes, principal: Principal) -> None:
        size = sum(entry.size for entry in self._load(digest, data).values()) + len(data)
        named = self._named.projects(digest, principal)
        if any(principal.role(project) >= Role.WRITER for project in named):
            return
        mine = _sent(principal, digest)
        sent = [info.key for info in self._store.list(_sent(principal)) if "/size-" in info.key]
        sizes = [size, *(int(key.rpartition("-")[2]) for key in sent if not key.startswith(mine))]
        # Recorded before it counts: of two that have no room together one is refused, or both.
        self._store.put(f"{mine}size-{size}", b"")
        try:
            check_room_somewhere(self._accounts, self._registry, sizes, principal)
        except QuotaError:
            self._store.delete([f"{mine}size-{size}"])
            raise

    def _accept_entry(self, key: Key, data: bytes, principal: Principal) -> bool:
        entry = RefEntry.parse(key.key, data)
        if entry.by != principal.name:
            raise UsageError(
                f"{key.key}: it says that it is by {entry.by!r}, and {principal.name} sent it",
                hint="sign it under the name of the token",
                whoami=True,
            )
        before = self._registry.refs.peek(entry.ref, entry.n - 1) if entry.n > 1 else None
        check_role(principal, entry.project, Role.ADMIN if entry.deleted else Role.WRITER)
        check_tombstone(self._registry, entry.ref, before, principal)
        if entry.digest is not None:
            self._check_complete(entry.digest, principal)
            self._accounts.projects.ensure(entry.project, principal)
            check_quota(self._accounts, self._registry, entry.project, entry.digest)
        if not admit(self._registry, entry):
            return False
        if entry.digest is not None:
            self._named.add(entry)
            self._store.delete(self.sent_by(entry.digest, principal))
            request_first_check(self._accounts, self._registry, entry.digest, entry.by)
        action = changes([entry] if before is None else [before, entry])[-1].action
        self._accounts.log(principal, _LOGGED.get(action, "set tag"), entry.project, str(entry.ref))
        return True

    # Uploads by link

    def upload_link(self, key: Key, stated: tuple[int, Digest], principal: Principal) -> tuple[str, Link] | None:
        """Where to upload an object of an artifact, and the number of the upload; None where it goes to the server."""
        if key.kind is not Kind.OBJECT or (links := self._store.links) is None:
            return None
        entry = self.expected(key)
        if (entry.size, entry.sha256) != stated:
            raise CorruptError(key.key, "its size and sha256 are not what the manifest says")
        number = uuid4().hex
        place = _upload(number, entry.size, principal)
        # An empty object stands for what can come; of several requests at a time, each sees its own among the others.
        self._store.put(place, b"")
        infos = list(self._store.list(_upload("", 0, principal)))
        still_good = max(info.modified for info in infos) - timedelta(seconds=LINK_SECONDS)
        waiting = sum(int(info.key.rpartition("-")[2]) if info.modified >= still_good else info.size for info in infos)
        size = sum(entry.size for entry in self._manifest(_digest(key)).values())
        if waiting > 2 * size + UPLOADS_BYTES:
            self._store.delete([place])
            raise QuotaError(
                f"{human_bytes(waiting - entry.size)} that {principal.name} has uploaded, or has links for, wait to be "
                "finished",
                hint="push again in an hour, when they are gone",
            )
        return number, links.upload_link(place, *stated)

    def finish_upload(self, key: Key, number: str, principal: Principal) -> None:
        """Take an upload for an object, once it is there and is what the manifest says; again, if it was taken."""
        if key.kind is not Kind.OBJECT or (links := self._store.links) is None:
            raise UsageError(f"{key.key} is not uploaded by a link", hint="PUT it")
        entry = self.expected(key)
        place = _upload(number, entry.size, principal)
        try:
            links.promote(place, key.key, entry.size, Digest(entry.sha256))
            # Before the upload goes: the same request again, even at the same time, finds either it or the record.
            self._record(key, principal)
            self._store.delete([place])
        except CorruptError:
            self._store.delete([place])
            raise
        except (NotFoundError, ConflictError):
            known = self.shows_name(key, principal) or self._reads(_digest(key), principal)
            if not known or self._store.head(key.key) is None:
                raise

    # Manifests

    def expected(self, key: Key) -> Object:
        """What the manifest of an artifact says about an object, which can come from any client."""
        entry = self._manifest(_digest(key)).get(key.name)
        if entry is None:
            raise CorruptError(key.key, "the manifest lists no such object")
        return entry

    def _manifest(self, digest: Digest) -> Mapping[str, Object]:
        if (table := self._manifests.get(digest)) is not None:
            return table
        for key in (artifact_prefix(digest) + MANIFEST, _announcement(digest)):
            try:
                return self._load(digest, self._store.get(key, max_bytes=LIMITS.manifest_bytes))
            except NotFoundError:
                continue
        raise _unknown(digest)

    def _load(self, digest: Digest, data: bytes) -> Mapping[str, Object]:
        return self._manifests.put(digest, {entry.key: entry for entry in load_manifest(data, digest).objects})

    # Records of what was sent

    def sent_by(self, digest: Digest, principal: Principal) -> frozenset[str]:
        """The records of what a principal has sent of an artifact."""
        return frozenset(info.key for info in self._store.list(_sent(principal, digest)))

    def check_announced(self, key: Key, principal: Principal) -> None:
        """Let objects be sent by a writer who can read the artifact, or has sent its manifest.

        Other writers are not told what a manifest says of its objects, nor that it is here.
        """
        digest = _digest(key)
        if (digest, principal.id) in self._announcers:
            return
        manifests = {record(digest, principal, name) for name in (_announcement(digest), MANIFEST)}
        if manifests.isdisjoint(self.sent_by(digest, principal)) and not self._reads(digest, principal):
            raise _unknown(digest)
        self._announcers.put((digest, principal.id), True)

    def shows_name(self, key: Key, principal: Principal) -> bool:
        """Whether a writer sees name and size of an object before it can be read: they have sent it."""
        if not allows(Kind.OBJECT, Action.SEND, principal):
            return False
        return self._store.head(record(_digest(key), principal, key.name)) is not None

    def _check_complete(self, digest: Digest, principal: Principal) -> None:
        """Let an artifact be named by a writer who can read it, or has sent all of it."""
        if self._reads(digest, principal):
            return
        sent = self.sent_by(digest, principal)
        if any(record(digest, principal, name) not in sent for name in {MANIFEST, *listing(self._store, digest)}):
            # Whether it is here is not said.
            raise NotFoundError(
                f"there is no artifact {digest.short} that {principal.name} can read or has sent as a whole",
                hint="push it with all the parts that it was made with",
            )

    def _record(self, key: Key, principal: Principal) -> None:
        if key.kind not in (Kind.OBJECT, Kind.MANIFEST, Kind.ANNOUNCED):
            return
        # The store is not asked who can read it: a record too many is deleted with the others.
        if not allows(Kind.OBJECT, Action.READ, principal, self._named.known(_digest(key))):
            self._store.put(record(_digest(key), principal, key.name or key.key), b"")

    def _reads(self, digest: Digest, principal: Principal) -> bool:
        return allows(Kind.OBJECT, Action.READ, principal, self._named.projects(digest, principal))


def record(digest: Digest, principal: Principal, name: str) -> str:
    """Key of the record of an object that a principal has sent."""
    return _sent(principal, digest) + hashlib.sha256(name.encode()).hexdigest()[:32]


def _sent(principal: Principal, digest: Digest | None = None) -> str:
    return f"{SENT}{_sender(principal)}/{f'{digest.hex}/' if digest else ''}"


def _sender(principal: Principal) -> str:
    return hashlib.sha256(principal.name.encode()).hexdigest()[:32]


def _upload(number: str, size: int, principal: Principal) -> str:
    folder = f"{UPLOADS}{_sender(principal)}/"
    return f"{folder}{number}-{size}" if number else folder


def _announcement(digest: Digest) -> str:
    return f"{ANNOUNCED}{digest.hex}/{MANIFEST}"


def _digest(key: Key) -> Digest:
    assert key.digest is not None  # it belongs to an artifact
    return key.digest


def _unknown(digest: Digest) -> UsageError:
    return UsageError(
        f"the manifest of {digest.short} is not known here, so its objects cannot be checked",
        hint=f"PUT it to {_announcement(digest)} first",
    )

"""What somebody sends to the served store: accepted only when it is what its key may hold.

An artifact's objects are accepted only when they are what its manifest says, so the manifest comes first, as an
announcement that no reader sees::

    PUT announced/sha256/<hex>/manifest.json      hashes to <hex>, parses
    PUT artifacts/sha256/<hex>/<key>              has the size and sha256 that the manifest states
    PUT artifacts/sha256/<hex>/manifest.json      hashes to <hex>; the announcement goes
    PUT refs/<project>/.../<n>.json               the log's next entry, by its sender, of a whole artifact
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, NotFoundError, QuotaError, UsageError
from maskreg.registry import Registry
from maskreg.registry.admission import admit, admit_key
from maskreg.service.auth.roles import Principal, Role, check_role
from maskreg.service.gateway.admission import check_tombstone
from maskreg.service.gateway.manifests import Manifests, announcement
from maskreg.service.gateway.policy import UPLOADS, Action, Key, Kind, check
from maskreg.service.gateway.presented import Presented, sender
from maskreg.service.gateway.sight import Sight
from maskreg.store.backrefs import BackReference
from maskreg.store.base import ObjectInfo
from maskreg.store.entry import RefEntry
from maskreg.store.s3 import S3Store
from maskreg.store.s3_links import SECONDS, Link, promote, uploading
from maskreg.words import human_bytes

_UPLOADS_BYTES = 1 << 30


@dataclass(frozen=True)
class Reception:
    """What a server does about what is sent, besides checking it.

    Attributes:
        ensure: called with each new entry and its sender; makes a project that is not there yet, or raises.
        stage: called with each artifact that a writer begins to send, its size in bytes and its sender; raises where
            there is no room for it.
        accepted: called with each entry that was written.
    """

    ensure: Callable[[RefEntry, Principal], None]
    stage: Callable[[Digest, int, Principal], None]
    accepted: Callable[[RefEntry], None]


class Incoming:
    """Takes what is sent for a registry, after the policy. Safe to use from many threads."""

    def __init__(self, registry: Registry, sight: Sight, manifests: Manifests, reception: Reception) -> None:
        """Take what is sent for a registry.

        Args:
            registry: the registry.
            sight: where its artifacts are named.
            manifests: what the artifacts consist of that are being sent.
            reception: what the server does about it.
        """
        self._registry, self._store = registry, registry.store
        self._sight, self._manifests, self._reception = sight, manifests, reception
        self.presented = Presented(registry.store, sight)

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
                self._registry.ensure_uuid()
                return False
            case Kind.ANNOUNCED | Kind.MANIFEST:
                assert key.digest is not None  # both belong to an artifact
                self._manifests.load(key.digest, data)
                self._stage_new(key.digest, self._manifests.size(key.digest) + len(data), principal)
            case Kind.OBJECT:
                entry = self._manifests.expected(key)
                if (entry.size, entry.sha256) != (len(sent), digest):
                    raise CorruptError(key.key, "its bytes are not what the manifest says")
            case Kind.BACK_REFERENCE:
                return self._accept_back_reference(key, data, principal)
            case Kind.KEY:
                return admit_key(self._registry, key.key, data, by=principal.name)
        if create:
            return self._store.create(key.key, sent)
        self._store.put(key.key, sent)
        if key.kind is Kind.MANIFEST:
            assert key.digest is not None  # it belongs to an artifact
            self._store.delete([announcement(key.digest)])
        self.presented.note(key, principal)
        return True

    def upload_link(self, key: Key, stated: tuple[int, Digest], principal: Principal) -> tuple[str, Link] | None:
        """Where to upload an object of an artifact, and the number of the upload; None where it goes to the server.

        Raises:
            CorruptError: it is not what the manifest says.
            QuotaError: too much waits already that the sender has uploaded and not finished.
        """
        if key.kind is not Kind.OBJECT or not isinstance(self._store, S3Store):
            return None
        entry = self._manifests.expected(key)
        assert key.digest is not None  # it belongs to an artifact
        if (entry.size, entry.sha256) != stated:
            raise CorruptError(key.key, "its size and sha256 are not what the manifest says")
        number = uuid4().hex
        place = _upload(number, entry.size, principal)
        # An empty object stands for what may come; of several requests at a time, each sees its own among the others.
        self._store.put(place, b"")
        infos = list(self._store.list(_upload("", 0, principal)))
        still_good = max(info.modified for info in infos) - timedelta(seconds=SECONDS)
        waiting = sum(int(info.key.rpartition("-")[2]) if info.modified >= still_good else info.size for info in infos)
        if waiting > 2 * self._manifests.size(key.digest) + _UPLOADS_BYTES:
            self._store.delete([place])
            raise QuotaError(
                f"{human_bytes(waiting - entry.size)} that {principal.name} has uploaded, or has links for, wait to be "
                "finished",
                hint="push again in an hour, when they are gone",
            )
        return number, uploading(self._store, place, *stated)

    def finish_upload(self, key: Key, number: str, principal: Principal) -> None:
        """Take an upload for an object, once it is there and is what the manifest says; again, if it was taken.

        Raises:
            NotFoundError: nothing was uploaded.
            ConflictError: another request is taking it.
            CorruptError: it is something else.
            UsageError: this server takes no uploads elsewhere.
        """
        if key.kind is not Kind.OBJECT or not isinstance(self._store, S3Store):
            raise UsageError(f"{key.key} is not uploaded by a link", hint="PUT it")
        digest, entry = key.digest, self._manifests.expected(key)
        assert digest is not None  # it belongs to an artifact
        place = _upload(number, entry.size, principal)
        try:
            promote(self._store, place, key.key, entry.size, Digest(entry.sha256))
            # Before the upload goes: the same request again, even at the same time, finds either it or the record.
            self.presented.note(key, principal)
            self._store.delete([place])
        except CorruptError:
            self._store.delete([place])
            raise
        except (NotFoundError, ConflictError):
            known = self.presented.shows_name(key, principal) or self.presented.reads(digest, principal)
            if not known or self._store.head(key.key) is None:
                raise

    def _stage_new(self, digest: Digest, size: int, principal: Principal) -> None:
        named = self._sight.projects(digest, principal)
        if not any(principal.role(project) >= Role.WRITER for project in named):
            self._reception.stage(digest, size, principal)

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
            self.presented.check_complete(entry.digest, principal)
        self._reception.ensure(entry, principal)
        if not admit(self._registry, entry):
            return False
        self._sight.saw(entry)
        if entry.digest is not None:
            self.presented.forget(entry.digest, principal)
        self._reception.accepted(entry)
        return True

    def _accept_back_reference(self, key: Key, data: bytes, principal: Principal) -> bool:
        reference = BackReference.of(ObjectInfo(key.key, len(data), self._store.clock()))
        assert reference is not None  # its key says so
        ref = reference.parse(data)
        check(key, Action.SEND, principal, (ref.project,))
        self._store.put(key.key, data)
        return True


def _upload(number: str, size: int, principal: Principal) -> str:
    folder = f"{UPLOADS}{sender(principal)}/"
    return f"{folder}{number}-{size}" if number else folder

"""What writers have sent of artifacts that they cannot read.

To know a digest is not to know the artifact. A writer sees, completes and names an artifact only where they can read it
or have sent its objects themselves, whether a project names it already, another client is sending it, or no
project is known to have it. A small record is kept of each object that was sent, until its sender sets a name.
"""

from __future__ import annotations

import hashlib

from maskreg.artifact.layout import MANIFEST
from maskreg.artifact.presence import listing
from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.service.auth.roles import Principal
from maskreg.service.gateway.manifests import announcement, unknown
from maskreg.service.gateway.policy import PRESENTED, Action, Key, Kind, allows
from maskreg.service.gateway.sight import Sight
from maskreg.service.remembered import Remembered
from maskreg.store import Store

_KNOWING = 4_096


class Presented:
    """The records of a store. Safe to use from many threads."""

    def __init__(self, store: Store, sight: Sight) -> None:
        """Keep records; none is read yet.

        Args:
            store: keeps them.
            sight: where artifacts are named.
        """
        self._store, self._sight = store, sight
        # Who was found to know an artifact's manifest, as digest and account; it stays true.
        self._knowing: Remembered[tuple[Digest, str], bool] = Remembered(_KNOWING)

    def by(self, digest: Digest, principal: Principal) -> frozenset[str]:
        """The records of what somebody has sent of an artifact, as :func:`record` names them."""
        return frozenset(info.key for info in self._store.list(record(digest, principal, "")))

    def note(self, key: Key, principal: Principal) -> None:
        """Record an object that the principal has sent, unless it is known that they can read the artifact."""
        if key.kind in (Kind.OBJECT, Kind.MANIFEST, Kind.ANNOUNCED):
            assert key.digest is not None  # it belongs to an artifact
            # The store is not asked who has it: a record too many is deleted with the others.
            if not allows(Kind.OBJECT, Action.READ, principal, self._sight.known(key.digest)):
                self._store.put(record(key.digest, principal, key.name or key.key), b"")

    def forget(self, digest: Digest, principal: Principal) -> None:
        """Delete the records of somebody who has named an artifact, and may read it from now on."""
        self._store.delete(self.by(digest, principal))

    def check_complete(self, digest: Digest, principal: Principal) -> None:
        """Let an artifact be named by a writer who can read it, or has sent all of it.

        Raises:
            NotFoundError: they cannot, and have not; whether it is here is not said.
        """
        if self.reads(digest, principal):
            return
        presented = self.by(digest, principal)
        if any(record(digest, principal, name) not in presented for name in {MANIFEST, *listing(self._store, digest)}):
            raise NotFoundError(
                f"there is no artifact {digest.short} that {principal.name} can read or has sent as a whole",
                hint="push it with all the parts that it was made with",
            )

    def check_announced(self, key: Key, principal: Principal) -> None:
        """Let objects be sent by a writer who can read the artifact, or has sent its manifest.

        Other writers are not told what a manifest says of its objects, nor that it is here.

        Raises:
            UsageError: they cannot, and have not.
        """
        assert key.digest is not None  # it belongs to an artifact
        knower = (key.digest, principal.id)
        if knower in self._knowing:
            return
        manifests = {record(key.digest, principal, name) for name in (announcement(key.digest), MANIFEST)}
        if manifests.isdisjoint(self.by(key.digest, principal)) and not self.reads(key.digest, principal):
            raise unknown(key.digest)
        self._knowing.put(knower, True)

    def shows_name(self, key: Key, principal: Principal) -> bool:
        """Whether a writer sees name and size of an object before it may be read: they have sent it."""
        assert key.digest is not None  # it belongs to an artifact
        if not allows(Kind.OBJECT, Action.SEND, principal):
            return False
        return self._store.head(record(key.digest, principal, key.name)) is not None

    def reads(self, digest: Digest, principal: Principal) -> bool:
        """Whether the principal can read an artifact."""
        return allows(Kind.OBJECT, Action.READ, principal, self._sight.projects(digest, principal))


def sender(principal: Principal) -> str:
    """Who sends, as a segment of a key."""
    return hashlib.sha256(principal.name.encode()).hexdigest()[:32]


def record(digest: Digest, principal: Principal, name: str) -> str:
    """Key of the record of an object that somebody has sent; without a name, what those of an artifact begin with."""
    prefix = f"{PRESENTED}{digest.hex}/{sender(principal)}/"
    return prefix + hashlib.sha256(name.encode()).hexdigest()[:32] if name else prefix

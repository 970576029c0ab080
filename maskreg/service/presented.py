"""What writers have sent of artifacts that they cannot read.

Whoever knows a digest does not know the artifact. So an artifact that is named only in projects which a writer cannot
read shows nothing to that writer, who gets to name it by sending all of its objects again; a small record is kept of
each, until the name is set.
"""

from __future__ import annotations

import hashlib

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.presence import listing
from maskreg.digest import Digest
from maskreg.errors import NotAllowedError
from maskreg.service.accounts.roles import Principal
from maskreg.service.manifests import announcement, unknown
from maskreg.service.policy import PRESENTED, Action, Key, Kind, allows
from maskreg.service.remembered import Remembered
from maskreg.service.sight import Sight
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
        """Keep a record of what somebody has just sent, where they cannot read it."""
        if key.kind in (Kind.OBJECT, Kind.MANIFEST):
            assert key.digest is not None  # it belongs to an artifact
            projects = self._sight.projects(key.digest, principal)
            if projects and not allows(Kind.OBJECT, Action.READ, principal, projects):
                self._store.put(record(key.digest, principal, key.name), b"")

    def forget(self, digest: Digest, principal: Principal) -> None:
        """Delete the records of somebody who has named an artifact, and may read it from now on."""
        self._store.delete(self.by(digest, principal))

    def check_complete(self, digest: Digest, principal: Principal) -> None:
        """Let an artifact be named by who may read it, or has sent all of it.

        Raises:
            NotAllowedError: they may not, and have not.
        """
        projects = self._sight.projects(digest, principal)
        if not projects or allows(Kind.OBJECT, Action.READ, principal, projects):
            return
        presented = self.by(digest, principal)
        if any(record(digest, principal, name) not in presented for name in listing(self._store, digest)):
            raise NotAllowedError(
                f"{digest.short} belongs to a project that {principal.name} may not read",
                hint="push it with all the parts that it was made with",
            )

    def check_announced(self, key: Key, principal: Principal) -> None:
        """Let objects be sent by who may read the artifact, or has sent its manifest.

        What a manifest says of its objects, and that it is here, is for nobody else.

        Raises:
            UsageError: they may not, and have not.
        """
        assert key.digest is not None  # it belongs to an artifact
        knower = (key.digest, principal.id)
        if knower in self._knowing:
            return
        if self._store.head(announcement(key.digest)) is None:
            projects = self._sight.projects(key.digest, principal)
            if not projects:
                if self._store.head(artifact_prefix(key.digest) + MANIFEST) is None:
                    raise unknown(key.digest)
                return
            if not allows(Kind.OBJECT, Action.READ, principal, projects):
                manifest = record(key.digest, principal, MANIFEST)
                if manifest not in self.by(key.digest, principal):
                    raise unknown(key.digest)
        self._knowing.put(knower, True)

    def shows_name(self, key: Key, principal: Principal) -> bool:
        """Whether a writer sees name and size of an object before it may be read: they have sent it."""
        assert key.digest is not None  # it belongs to an artifact
        if not allows(Kind.OBJECT, Action.SEND, principal):
            return False
        projects = self._sight.projects(key.digest, principal)
        return not projects or record(key.digest, principal, key.name) in self.by(key.digest, principal)


def sender(principal: Principal) -> str:
    """Who sends, as a segment of a key."""
    return hashlib.sha256(principal.name.encode()).hexdigest()[:32]


def record(digest: Digest, principal: Principal, name: str) -> str:
    """Key of the record of an object that somebody has sent; without a name, what those of an artifact begin with."""
    prefix = f"{PRESENTED}{digest.hex}/{sender(principal)}/"
    return prefix + hashlib.sha256(name.encode()).hexdigest()[:32] if name else prefix

"""What artifacts with a name stand on: the links below them, which are kept as long as they are.

A reader that is behind needs every link between its weights and the tag, though the tag names the last one alone::

    tag -> link C -> link B -> A        B and A have no name any more, and stay
    tag -> S (what squashing gives)     C, B and A go when the grace period is over

Manifests are read once each, a few at a time, and only if there is something that may be deleted. One that is damaged
keeps every artifact whose digest it mentions.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.links import stands_on
from maskreg.artifact.presence import read_manifest
from maskreg.digest import Digest
from maskreg.errors import DataError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.registry.garbage.ledger import Ledger
from maskreg.store import Store

_READERS = 16
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Standing:
    """Which artifacts of a store stand on which.

    Attributes:
        store: where they are.
        ledger: what is known of them.
    """

    store: Store
    ledger: Ledger

    def read(self) -> None:
        """Read the manifests of artifacts with a name, and of what they stand on, down to the first of each chain.

        Raises:
            UnavailableError: the store does not answer.
        """
        with ThreadPoolExecutor(_READERS) as pool:
            for batch in self.ledger.unread_artifacts():
                for digest, below in zip(batch, pool.map(self._read, batch), strict=True):
                    self.ledger.link(digest, below)
                self.ledger.add("read", batch)

    def _read(self, digest: Digest) -> frozenset[Digest]:
        try:
            below = stands_on(read_manifest(self.store, digest)[1])
            return frozenset() if below is None else frozenset([below])
        except NotFoundError:
            # Nobody can follow a chain through what is not there.
            return frozenset()
        except DataError:
            return self._mentioned(digest)

    def _mentioned(self, digest: Digest) -> frozenset[Digest]:
        key = artifact_prefix(digest) + MANIFEST
        text = self.store.get(key, max_bytes=LIMITS.manifest_bytes).decode("ascii", "replace")
        return frozenset(Digest(each) for each in _DIGEST.findall(text))


@dataclass
class Kept:
    """Which artifacts names keep: those that they point to, and what these stand on.

    Attributes:
        ledger: which names there are.
        standing: of the store.
        only_given_up: tags are damaged, so only what was given up may go.
        with_lost: what a tag left a while ago is kept too.
    """

    ledger: Ledger
    standing: Standing
    only_given_up: bool = False
    with_lost: bool = True
    _has_read: bool = field(default=False, repr=False)

    def __call__(self, digest: Digest) -> bool:
        """Whether an artifact is kept."""
        if self.ledger.is_named(digest) or (self.with_lost and self.ledger.has("lost", digest)):
            return True
        if self.only_given_up and not self.ledger.has("given_up", digest):
            return True
        if not self._has_read:
            self.standing.read()
            self._has_read = True
        return self.ledger.carries(digest)

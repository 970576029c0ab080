"""What artifacts with a name stand on: the links below them, which are kept as long as they are.

A reader that is behind needs every link between its weights and the tag, though the tag names the last one alone::

    tag -> link C -> link B -> A        B and A have no name any more, and stay
    tag -> S (what squashing gives)     C, B and A go when the grace period is over

Manifests are read once each, a few at a time, and only if there is something that may be deleted. One that is damaged
keeps every artifact whose digest it mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.manifest import load_manifest, stands_on
from maskreg.digest import Digest
from maskreg.errors import DataError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.progress import SILENT, Progress, counting
from maskreg.registry.garbage.ledger import Ledger
from maskreg.store import Store

_READERS = 16
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_LINK = re.compile(rb'"link"|\\')
"""What a manifest of a link has in it, however it is spelled. To check all of a manifest takes far longer."""


@dataclass(frozen=True)
class Standing:
    """Which artifacts of a store stand on which.

    Attributes:
        store: where they are.
        ledger: what is known of them.
        progress: progress callback, in manifests.
    """

    store: Store
    ledger: Ledger
    progress: Progress = SILENT

    def read(self) -> None:
        """Read the manifests of artifacts with a name, and of what they stand on, down to the first of each chain.

        Raises:
            UnavailableError: the store does not answer.
        """
        for _ in counting(self.progress, "read manifests", self._read_all()):
            pass

    def _read_all(self) -> Iterator[Digest]:
        with ThreadPoolExecutor(_READERS) as pool:
            for batch in self.ledger.unread_artifacts():
                for digest, below in zip(batch, pool.map(self._read, batch), strict=True):
                    self.ledger.link(digest, below)
                    yield digest
                self.ledger.add("read", batch)

    def _read(self, digest: Digest) -> frozenset[Digest]:
        try:
            data = self.store.get(artifact_prefix(digest) + MANIFEST, max_bytes=LIMITS.manifest_bytes)
        except NotFoundError:
            # Nobody can follow a chain through what is not there.
            return frozenset()
        if Digest.of(data) == digest and not _LINK.search(data):
            return frozenset()
        try:
            below = stands_on(load_manifest(data, digest, LIMITS))
            return frozenset() if below is None else frozenset([below])
        except DataError:
            return frozenset(Digest(each) for each in _DIGEST.findall(data.decode("ascii", "replace")))


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

"""What artifacts with a name stand on: the links below them, which are kept as long as they are.

A reader that is behind needs every link between its weights and the tag, though the tag names the last one alone::

    tag -> link C -> link B -> A        B and A have no name any more, and stay
    tag -> S (what squashing gives)     C, B and A go when the grace period is over

Manifests are read once each, and only if there is something that may be deleted. One that is damaged keeps every
artifact whose digest it mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.links import stands_on
from maskreg.artifact.presence import read_manifest
from maskreg.digest import Digest
from maskreg.errors import DataError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.store import Store

_READERS = 16
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


@dataclass
class Standing:
    """Which artifacts of a store stand on which.

    Attributes:
        store: where they are.
    """

    store: Store
    _below: dict[Digest, frozenset[Digest]] = field(default_factory=dict, repr=False)

    def below(self, digests: Iterable[Digest]) -> set[Digest]:
        """Everything that these artifacts stand on, down to the first of each chain.

        Raises:
            UnavailableError: the store does not answer.
        """
        held: set[Digest] = set()
        level = set(digests)
        while level:
            new = [digest for digest in level if digest not in self._below]
            with ThreadPoolExecutor(_READERS) as pool:
                self._below.update(zip(new, pool.map(self._read, new), strict=True))
            level = {below for digest in level for below in self._below[digest]} - held
            held |= level
        return held

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
        named: what names point to, or did until a while ago.
        standing: of the store.
        abandoned: if not None, only these may go.
    """

    named: set[Digest]
    standing: Standing
    abandoned: set[Digest] | None = None
    _below: set[Digest] | None = field(default=None, repr=False)

    def __call__(self, digest: Digest) -> bool:
        """Whether an artifact is kept."""
        if digest in self.named or (self.abandoned is not None and digest not in self.abandoned):
            return True
        if self._below is None:
            self._below = self.standing.below(self.named)
        return digest in self._below

"""Naming an artifact while a garbage collection may be about to delete it, without a lock.

Push (also pull, import, tag, restore) and collection each write a flag before they read the other's::

    push                                     collect
    1 wait until there is no marker          1 find artifacts without a ref, all objects older than the grace period
    2 write missing objects                  2 write the marker
    3 write the manifest (a fresh time)      3 list refs and objects again:
    4 a marker, or an object missing?          named now, or anything newer?   lift the marker, spare it
      start over at 1                        4 delete the manifest, the objects, the marker
    5 write the ref
    6 the same look as 4; start over at 1, without 5

In a strongly consistent store at least one side sees the other. If push's manifest (3) comes before collect's second
listing (3), collect sees the fresh time and spares the artifact. Otherwise collect's marker (2) came before push's
look (4), so push sees the marker or, when it is lifted already, the holes.

For example, push reuses all objects of an old, unnamed artifact::

    collect: finds it, writes the marker, lists again: unchanged
    push:    writes the manifest, sees the marker, waits
    collect: deletes manifest and objects, lifts the marker
    push:    starts over: everything is missing, uploads it, no marker, complete, writes the ref

Step 6 is for a collection without a grace period, which a fresh time does not stop: it may take the artifact for a
candidate after 3, mark it after 4 and list the refs before 5.

A marker is ``doomed/sha256/<hex>/<nonce>``: outside the artifact, whose prefix holds nothing else, and one for each
collection, so that none lifts another's. A collection stops deleting after half of ``MARKER_LIFE``, so an older
marker was left by one that died, and may be removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.manifest import Object
from maskreg.artifact.presence import absent, listing
from maskreg.digest import Digest
from maskreg.errors import TryAgainError
from maskreg.store.base import Store

T = TypeVar("T")

MARKERS = "doomed/sha256/"
MARKER_LIFE = timedelta(hours=1)
"""Age of a marker by which the collection that wrote it has stopped deleting, or died."""

PATIENCE_S = 60.0
"""How long to wait for a collection to decide."""

_ROUNDS = 4
_POLL_S = 0.5


def marker_prefix(digest: Digest) -> str:
    """Prefix of the markers that collections write for an artifact."""
    return f"{MARKERS}{digest.hex}/"


@dataclass(frozen=True)
class Delivery:
    """An artifact on its way into a store.

    Attributes:
        store: where it goes.
        digest: the artifact.
        manifest: its manifest's bytes.
        needed: objects that have to be there before it may be named.
    """

    store: Store
    digest: Digest
    manifest: bytes
    needed: Collection[Object]

    def is_complete(self) -> bool:
        """Whether the manifest and all needed objects are there and no collection has marked the artifact."""
        # Markers first: a collection that lifted its marker before this look has left holes that the listing shows.
        if any(True for _ in self.store.list(marker_prefix(self.digest))):
            return False
        present = listing(self.store, self.digest)
        return MANIFEST in present and not absent(self.needed, present)


def settle(
    delivery: Delivery, bring: Callable[[], None], name: Callable[[], T], *, patience_s: float = PATIENCE_S
) -> T:
    """Complete an artifact, then name it, even while garbage is collected.

    Args:
        delivery: the artifact and where it goes.
        bring: writes the needed objects that are missing; may run several times.
        name: writes the ref; runs at most once.
        patience_s: how long to wait for collections, in seconds.

    Raises:
        TryAgainError: a collection keeps its marker for longer, or keeps deleting.
    """
    store, digest = delivery.store, delivery.digest
    deadline = time.monotonic() + patience_s
    named: list[T] = []
    for _ in range(_ROUNDS):
        _wait_for_markers(store, digest, deadline)
        bring()
        store.put(artifact_prefix(digest) + MANIFEST, delivery.manifest)
        if not delivery.is_complete():
            continue
        if not named:
            named.append(name())
        if delivery.is_complete():
            return named[0]
    raise TryAgainError(
        f"objects of {digest.short} keep disappearing from {store.url}: a garbage collection is running",
        hint="wait for it to end, then run the same command again",
    )


def _wait_for_markers(store: Store, digest: Digest, deadline: float) -> None:
    while markers := list(store.list(marker_prefix(digest))):
        oldest_alive = store.clock() - MARKER_LIFE
        dead = [info.key for info in markers if info.modified < oldest_alive]
        if dead:
            store.delete(dead)
            continue
        left = deadline - time.monotonic()
        if left <= 0:
            until = max(info.modified for info in markers) + MARKER_LIFE
            raise TryAgainError(
                f"a garbage collection of {store.url} is deciding about {digest.short}; "
                f"if it died, its marker expires at {until:%Y-%m-%d %H:%M:%S} UTC",
                hint="run the same command again in a moment",
            )
        time.sleep(min(_POLL_S, left))

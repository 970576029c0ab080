"""Giving an artifact a name while a garbage collection may be about to delete it.

Each side writes its flag before it reads the other's. Who names an artifact writes its manifest anew, then looks
for markers and holes; who collects writes a marker, then looks for anything newer and for refs. In a strongly
consistent store at least one of them sees the other, and the one that names starts over. It looks once more after
the ref is written, so that this also holds for a collection that allows no grace period at all.

Markers lie at ``doomed/sha256/<hex>/<nonce>``: outside the artifact, so that its prefix holds nothing but the
artifact, and one for each collection, so that none lifts the marker of another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
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
"""A collection stops deleting long before its marker is this old; an older one was left by one that died."""

PATIENCE_S = 60.0
"""How long to wait for a collection to make up its mind."""

_ROUNDS = 4
_POLL_S = 0.5


def marker_prefix(digest: Digest) -> str:
    """Prefix of the markers that collections put on an artifact."""
    return f"{MARKERS}{digest.hex}/"


def settle(
    store: Store,
    digest: Digest,
    manifest: bytes,
    needed: Collection[Object],
    bring: Callable[[], None],
    name: Callable[[], T],
    *,
    patience_s: float = PATIENCE_S,
) -> T:
    """Make sure that an artifact is wholly there, then name it, whatever a collection does meanwhile.

    Args:
        store: where it is to be.
        digest: the artifact.
        manifest: its manifest's bytes.
        needed: the objects that have to be there.
        bring: puts those of them that are missing; may run several times.
        name: writes the ref; runs at most once.
        patience_s: how long to wait for collections, in seconds.

    Raises:
        TryAgainError: a collection keeps its marker for longer, or keeps deleting.
    """
    deadline = time.monotonic() + patience_s
    named: list[T] = []
    for _ in range(_ROUNDS):
        _wait_for_markers(store, digest, deadline)
        bring()
        store.put(artifact_prefix(digest) + MANIFEST, manifest)
        if not _is_settled(store, digest, needed):
            continue
        if not named:
            named.append(name())
        if _is_settled(store, digest, needed):
            return named[0]
    raise TryAgainError(
        f"objects of {digest.short} keep disappearing from {store.url}: a garbage collection is at work",
        hint="wait for it to end, then run the same command again",
    )


def _is_settled(store: Store, digest: Digest, needed: Collection[Object]) -> bool:
    # Markers first: one that was lifted before this look has left its holes for the next.
    if any(True for _ in store.list(marker_prefix(digest))):
        return False
    here = listing(store, digest)
    return MANIFEST in here and not absent(needed, here)


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

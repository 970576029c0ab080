"""Naming an artifact while a garbage collection may be about to delete it, without a lock.

Push (also pull, import, tag, restore) and collection each write a flag before they read the other's::

    push                                     collect
    1 wait until there is no marker          1 find artifacts without a ref, all objects older than the grace period
    2 write missing objects                  2 write the marker
    3 write the manifest (a fresh time)      3 list refs and objects again:
      refused, and it is there? go on          named now, or anything newer?   lift the marker, spare it
    4 a marker, or an object missing?
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
candidate after 3, mark it after 4 and list the refs before 5. For the same reason an artifact that is whole can be
named, or found to be named, where its manifest may not be written again: only the time that no collection takes an
artifact without a name is not extended.

Whose marker may be lifted by others, and why that is safe: :mod:`maskreg.registry.settling.markers`.

A stale listing shows holes, and may hide markers. So what it lacks is read directly. It is there: after a few more
looks push gives up rather than upload everything again. It is not there: a collection has deleted it, and push starts
over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.artifact.presence import listing, objects_of, read_manifest, whole_parts
from maskreg.digest import Digest
from maskreg.errors import MaskregError, NotAllowedError, TryAgainError
from maskreg.registry.settling.markers import Verdict, lift_dead, marker_prefix
from maskreg.store.base import Store
from maskreg.store.chain import ASK, looks, not_listed

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Object

PATIENCE_S = 60.0
"""How long to wait for a collection to decide."""

_ROUNDS = 4
_SAMPLE = 8
_POLL_S = 0.5


class Settling:
    """An artifact that gets a name, whole, even while garbage is collected.

    The numbers are the steps of the module's text::

        settling.make_whole()    1 to 4
        ...                      5: write the ref
        settling.confirm()       6
    """

    def __init__(
        self,
        store: Store,
        digest: Digest,
        manifest: bytes,
        needed: Collection[Object],
        bring: Callable[[], None],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Nothing is written yet."""
        self._store, self._digest, self._manifest, self._bring = store, digest, manifest, bring
        self._sizes = {MANIFEST: len(manifest), **{entry.key: entry.size for entry in needed}}
        self._deadline = time.monotonic() + patience_s
        self._rounds = iter(range(_ROUNDS))
        self._has_seen_marker = False

    def make_whole(self) -> None:
        """Bring what is missing, and wait for collections that look at the artifact."""
        for _ in self._rounds:
            if _wait_for_markers(self._store, self._digest, self._deadline):
                self._has_seen_marker = True
            self._bring()
            self._renew()
            if self._is_whole():
                return
        raise _keeps_disappearing(self._store, self._digest, marked=self._has_seen_marker)

    def confirm(self) -> None:
        """Look again after the ref was written."""
        if not self._is_whole():
            self.make_whole()

    def _is_whole(self) -> bool:
        # The marker first: a collection that lifts it before the other look leaves holes, which that look sees.
        if any(True for _ in self._store.list(marker_prefix(self._digest))):
            self._has_seen_marker = True
            return False
        return is_listed(self._store, self._digest, self._sizes)

    def _renew(self) -> None:
        # A manifest that is there and must not be written again is left.
        key = artifact_prefix(self._digest) + MANIFEST
        try:
            self._store.put(key, self._manifest)
        except NotAllowedError:
            info = self._store.head(key)
            if info is None or info.size != len(self._manifest):
                raise
            if self._store.get(key, max_bytes=info.size) != self._manifest:
                raise


def in_place(store: Store, digest: Digest, *, patience_s: float) -> Settling:
    """What names an artifact that is in a store already; each part that is present has to be complete."""
    data, manifest = read_manifest(store, digest)
    present = listing(store, digest)
    if MANIFEST not in present:
        # It has just been read.
        if not is_listed(store, digest, {MANIFEST: len(data)}):
            raise collected(store, digest)
        present = listing(store, digest)
    needed = objects_of(manifest, whole_parts(store, digest, manifest, present))
    looks_left = iter([False])

    def must_have() -> None:
        # The first time they have just been listed.
        if next(looks_left, True) and not is_listed(store, digest, {entry.key: entry.size for entry in needed}):
            raise collected(store, digest)

    return Settling(store, digest, data, needed, must_have, patience_s=patience_s)


def is_listed(store: Store, digest: Digest, sizes: Mapping[str, int]) -> bool:
    """Whether a store lists these objects of an artifact; looks again while it holds what it does not list.

    Args:
        store: where to look.
        digest: the artifact.
        sizes: the objects' bytes, by key.
    """
    for _ in looks():
        present = listing(store, digest)
        missing = [key for key in sizes if key not in present or present[key].size != sizes[key]]
        if not missing:
            return True
        # A few are enough: a collection deletes the manifest first, and all of them in the end.
        for key in missing[:_SAMPLE]:
            info = store.head(artifact_prefix(digest) + key)
            if info is None or info.size != sizes[key]:
                return False
    raise not_listed(store.url, artifact_prefix(digest) + missing[0])


def collected(store: Store, digest: Digest) -> MaskregError:
    """The error that objects of an artifact were there a moment ago and are not any more."""
    return TryAgainError(
        f"a garbage collection of {store.url} is deleting {digest.short}",
        hint="run the same command again; it succeeds, or says that the artifact was deleted",
    )


def _keeps_disappearing(store: Store, digest: Digest, *, marked: bool) -> TryAgainError:
    if marked:
        return TryAgainError(
            f"objects of {digest.short} keep disappearing from {store.url}: a garbage collection is running",
            hint="wait for it to end, then run the same command again",
        )
    return TryAgainError(
        f"objects of {digest.short} keep disappearing from {store.url}, and no garbage collection has marked them: "
        "something else deletes them, such as a lifecycle rule of the bucket",
        hint=ASK,
    )


def _wait_for_markers(store: Store, digest: Digest, deadline: float) -> bool:
    # Whether there was a marker.
    waited = False
    while markers := [info.key for info in store.list(marker_prefix(digest))]:
        verdicts = lift_dead(store, markers)
        alive = [verdict for verdict in verdicts.values() if not verdict.over]
        left = deadline - time.monotonic()
        # What was lifted is looked for again at once, but not for ever: the listing may be stale.
        if left <= 0 and (alive or waited):
            raise _undecided(store, digest, alive)
        waited = True
        if alive:
            time.sleep(min(_POLL_S, left))
    return waited


def _undecided(store: Store, digest: Digest, alive: list[Verdict]) -> TryAgainError:
    fault = f"a garbage collection of {store.url} is deciding about {digest.short}"
    if not alive:
        return TryAgainError(
            f"{store.url} still lists a garbage collection's marker for {digest.short}, which was deleted",
            hint="run the same command again in a minute",
        )
    verdict = alive[0]
    who = f": {verdict.who}" if verdict.who else ""
    return TryAgainError(
        f"{fault}{who}; if it died, its marker expires at {verdict.until:%Y-%m-%d %H:%M:%S} UTC",
        hint="run the same command again in a moment",
    )

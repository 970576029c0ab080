"""Naming an artifact that is in a store already, whole, even while garbage is collected."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from maskreg.artifact.layout import MANIFEST
from maskreg.artifact.presence import listing, objects_of, read_manifest, whole_parts
from maskreg.digest import Digest
from maskreg.registry.settling.settle import Delivery, collected, is_listed, settle
from maskreg.store.base import Store

T = TypeVar("T")


def settle_in_place(store: Store, digest: Digest, name: Callable[[], T], *, patience_s: float) -> T:
    """Give a name to an artifact of a store, of which each part that is present has to be complete.

    Args:
        store: where it is.
        digest: the artifact.
        name: writes the ref; runs at most once.
        patience_s: how long to wait for collections, in seconds.

    Raises:
        NotFoundError: the artifact is not in the store.
        CorruptError: a part of it is incomplete.
        TryAgainError: a garbage collection is about to delete the artifact, or has begun to.
    """
    data, manifest = read_manifest(store, digest)
    present = listing(store, digest)
    if MANIFEST not in present:
        # It has just been read.
        if not is_listed(store, digest, {MANIFEST: len(data)}):
            raise collected(store, digest)
        present = listing(store, digest)
    needed = objects_of(manifest, whole_parts(store, digest, manifest, present))

    def must_have() -> None:
        if not is_listed(store, digest, {entry.key: entry.size for entry in needed}):
            raise collected(store, digest)

    return settle(Delivery(store, digest, data, needed), must_have, name, patience_s=patience_s)

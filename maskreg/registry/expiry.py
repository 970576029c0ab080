"""Expiry: artifacts that a run has published and left behind, deleted after minutes and not after a week.

An entry of the log consents: its card says the number of the version, and for how long followers can go on reading it
once the tag has left it. What was published without these is left to ordinary garbage collection::

    latest   L38  L39  L40  A40  L41  L42        A40: source -> version 40, an anchor; L41 stands on it
    keep 2   ---  ---  ---  ---  stay stay       dashes go, unless a tag names them, such as v40 -> A40,
                                                 a named artifact stands on them, or the tag left them just now

A follower that needs what has gone begins again at the anchor below the tag. Garbage collection does the work, with its
markers, so a process that dies in between leaves each artifact whole, or to the next collection.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.registry.chains import ABSENT
from maskreg.registry.collect import collect
from maskreg.registry.registry import Registry
from maskreg.registry.tags import ever_named
from maskreg.store.reflog import RefEntry

_VERSION, _LEASE = "version", "lease_s"


def consent(version: int, lease_s: int) -> dict[str, str]:
    """What a card says of a version that can expire."""
    return {_VERSION: str(version), _LEASE: str(lease_s)}


def version_of(entry: RefEntry | None) -> int:
    """The number of the version that an entry published; 0 for one that does not say, and so never expires."""
    meta: Mapping[str, str] = {} if entry is None else entry.card.meta
    texts = meta.get(_VERSION, ""), meta.get(_LEASE, "")
    return int(texts[0]) if all(text.isascii() and text.isdigit() and len(text) < 10 for text in texts) else 0


def expire(registry: Registry, ref: Ref, keep: int) -> int:
    """Delete what a tag has left behind, but for its newest versions; returns how many artifacts.

    Args:
        registry: where; a service does it itself.
        keep: versions that stay, the one that the tag points to included.
    """
    if (service := registry.store.service) is not None:
        return service.expire(ref, keep)
    head = registry.head(ref)
    if head is None:
        return 0
    old: set[Digest] = set()
    kept: set[Digest] = set()
    lease_s = absent = 0
    for entry in registry.refs.back(head):
        if entry.digest is None:
            continue
        if not 0 < version_of(entry) <= version_of(head) - keep:
            kept.add(entry.digest)
        elif registry.store.head(artifact_prefix(entry.digest) + MANIFEST) is not None:
            old.add(entry.digest)
            lease_s = max(lease_s, int(entry.card.meta[_LEASE]))
        elif (absent := absent + 1) == ABSENT:
            break  # what is older went before
    # Another tag did not consent, even one that has moved on.
    only = {digest for digest in old - kept if set(ever_named(registry, digest)) <= {ref}}
    if not only:
        return 0
    return len(collect(registry, timedelta(seconds=lease_s), only=only, delete_many=True).collected)

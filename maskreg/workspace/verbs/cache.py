"""Cache: the artifacts that this machine pulled, and could pull again; how much room they take, and making some."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from maskreg.artifact.layout import MANIFEST
from maskreg.artifact.presence import listing
from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.progress import SILENT, Progress
from maskreg.ref import Ref
from maskreg.registry import Registry, tags
from maskreg.registry.collect import collect
from maskreg.result import Result
from maskreg.workspace.workspace import Workspace, opened


@dataclass(frozen=True)
class Cached(Result):
    """An artifact that was pulled.

    Attributes:
        digest: the artifact.
        refs: its names, all of which a pull has set.
        size: bytes that it takes.
        pulled_at: when it was pulled last (aware, UTC).
    """

    digest: Digest
    refs: tuple[Ref, ...]
    size: int
    pulled_at: datetime


@dataclass(frozen=True)
class Pruned(Result):
    """What was removed from the cache, and what is left.

    Attributes:
        removed: the artifacts that went, the one that was pulled longest ago first.
        kept: bytes that the others take.
    """

    removed: tuple[Cached, ...]
    kept: int
    dry_run: bool = False

    @property
    def freed(self) -> int:
        """Bytes that the removed ones took."""
        return sum(item.size for item in self.removed)


def cached(*, workspace: Workspace | None = None) -> tuple[Cached, ...]:
    """List what was pulled, the one that was pulled longest ago first.

    An artifact that has a name which no pull has set is not in the cache: it is this machine's own.
    """
    with opened(workspace) as space:
        return _cached(space.local)


def prune_cache(
    *,
    max_bytes: int | None = None,
    only: Collection[Digest] | None = None,
    dry_run: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Pruned:
    """Remove artifacts that were pulled longest ago, until the cache is within its limit.

    Their names are removed, and their objects deleted under the protocol of :func:`gc`. A pull brings them back.

    Args:
        max_bytes: what the cache can take; by default the setting ``cache_size``.
        only: remove these, and ignore what the cache takes.

    Raises:
        UsageError: there is no limit.
        NotAllowedError: the local registry can only be read.
    """
    with opened(workspace) as space:
        items = _cached(space.local)
        limit = space.settings.cache_size if max_bytes is None else max_bytes
        if only is None and not limit and max_bytes is None:
            raise UsageError("the cache has no limit", options={"max_size": "50GB"})
        total = sum(item.size for item in items)
        removed = []
        for item in items:
            if item.digest in only if only is not None else total > limit:
                removed.append(item)
                total -= item.size
        if removed and not dry_run:
            for item in removed:
                for ref in item.refs:
                    tags.remove(space.local, ref.pinned(item.digest))
            gone = frozenset(item.digest for item in removed)
            how: dict[str, Any] = {"delete_many": True, "trust_listing": True, "progress": progress}
            collect(space.local, timedelta(), only=gone, **how)
        return Pruned(tuple(removed), total, dry_run)


def _cached(local: Registry) -> tuple[Cached, ...]:
    names: dict[Digest, list[Ref]] = {}
    own: set[Digest] = set()
    for head in local.refs.heads([]):
        if head.digest is not None:
            names.setdefault(head.digest, []).append(head.ref)
            if not head.origin:
                own.add(head.digest)
    items = []
    for digest in names.keys() - own:
        objects = listing(local.store, digest)
        if MANIFEST in objects:
            size = sum(info.size for info in objects.values())
            # Each pull writes the manifest anew.
            items.append(Cached(digest, tuple(sorted(names[digest])), size, objects[MANIFEST].modified))
    return tuple(sorted(items, key=lambda item: (item.pulled_at, item.digest)))

"""Runs: tags under which weights are published again and again, and what each version of one moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby, islice

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.parallel import ordered
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.expiry import version_of
from maskreg.store.reflog import RefEntry
from maskreg.workspace.lineage import READERS, Facts, facts_of
from maskreg.workspace.verbs.search import Page, browse
from maskreg.workspace.workspace import Workspace, registry_of

_ENTRIES = 4
"""Entries of a log that are read for each version of a page: an anchor and annotations are entries too."""


@dataclass(frozen=True)
class Version:
    """What a run's tag pointed to for a while.

    Attributes:
        entry: the number of its first entry in the tag's log.
        number: what the publisher counted, where it did; else ``entry``.
        at: when the tag was set to it (aware, UTC).
        meta: what the publisher said about it, such as its step.
        is_anchor: it is an earlier version once more, as an artifact that applies to the source.
        facts: None where the artifact is not there any more.
    """

    entry: int
    number: int
    digest: Digest
    at: datetime
    by: str
    meta: Mapping[str, str]
    is_anchor: bool
    facts: Facts | None


@dataclass(frozen=True)
class Versions:
    """Versions of a run, the newest first; ``older``: the entry before which there are more; None for none."""

    versions: tuple[Version, ...]
    older: int | None


def versions(
    ref: Ref,
    *,
    before: int | None = None,
    limit: int = 50,
    remote: str | None = None,
    workspace: Workspace | None = None,
) -> Versions:
    """The versions that a tag has had, a page of them; reads no more of a long run than of a short one.

    Args:
        before: only versions whose entries have a lower number; None for the latest.
        limit: versions of a page.

    Raises:
        NotFoundError: there is no such tag or entry.
    """
    with registry_of(remote, workspace) as (_, registry):
        first = registry.head(ref) if before is None else registry.refs.peek(ref, before - 1)
        if first is None:
            raise NotFoundError(f"there is no {ref}" if before is None else f"{ref} has no entry {before - 1}")
        found: list[tuple[RefEntry, RefEntry]] = []
        for digest, group in groupby(
            islice(registry.refs.back(first), _ENTRIES * limit), key=lambda entry: entry.digest
        ):
            if len(found) == limit:
                break
            same = [*group]
            if digest is not None:
                found.append((same[0], same[-1]))
            last = same[-1].n
        listed = ordered(lambda pair: _version(registry, *pair), found, jobs=READERS)
        return Versions(tuple(listed), last if last > 1 else None)


def _version(registry: Registry, latest: RefEntry, first: RefEntry) -> Version:
    """The version of entries in a row that point to one artifact."""
    digest = latest.last_digest
    assert digest is not None  # removals are left out
    facts = facts_of(registry, digest)
    is_anchor = facts is not None and not facts.is_link and first.n > 1
    number = version_of(latest) or first.n
    return Version(first.n, number, digest, first.at, latest.by, latest.card.meta, is_anchor, facts)


def recent_runs(query: Query, *, remote: str | None = None, workspace: Workspace | None = None) -> Page:
    """The runs among the deltas that a query gives; fewer than its limit, or none, while there are more."""
    page = browse(replace(query, filters={**query.filters, "kind": "delta"}), remote=remote, workspace=workspace)
    with registry_of(remote, workspace) as (_, registry):
        which = ordered(lambda row: is_run(registry, row.ref, row.digest), page.names, jobs=READERS)
        return Page(tuple(row for row, is_one in zip(page.names, which, strict=True) if is_one), page.after)


def is_run(registry: Registry, ref: Ref, digest: Digest) -> bool:
    """Whether a tag that points to an artifact is a run: the artifact is a link, the first of a chain, or an anchor."""
    facts = facts_of(registry, digest)
    return facts is not None and (facts.is_published or _is_anchored(registry, ref, digest))


@lru_cache(maxsize=5_000)
def _is_anchored(registry: Registry, ref: Ref, digest: Digest) -> bool:
    """Whether an artifact that holds its own mask is the anchor of a run, and not what its tag began with."""
    head = registry.refs.head(ref)
    return head is not None and head.n > 1 and head.digest == digest and version_of(head) > 0

"""What a reader can see: the one place of the pages that asks the use cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from maskreg.catalog.query import Query, SearchResult
from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.ref import Ref
from maskreg.registry.signing import SignedTag
from maskreg.service.auth.roles import Principal
from maskreg.service.context import Service
from maskreg.service.gateway.visibility import visible
from maskreg.workspace import keys, lineage
from maskreg.workspace.lineage import Lineage
from maskreg.workspace.log import LogEntry, log
from maskreg.workspace.search import Page, browse
from maskreg.workspace.show import Description, show

_NAMES = 5


def names(service: Service, principal: Principal, query: Query) -> Page:
    """The names that match a query and that a reader can read."""
    return browse(visible(query, principal), remote=service.remote, workspace=service.workspace)


def names_of(
    service: Service, principal: Principal, digests: Iterable[Digest]
) -> Mapping[Digest, tuple[SearchResult, ...]]:
    """The names of artifacts that a reader can read, a few of each."""
    return {
        digest: names(service, principal, Query(digest=digest, limit=_NAMES)).names for digest in dict.fromkeys(digests)
    }


def resolved(service: Service, ref: Ref) -> Ref:
    """A name, pinned to what it points to now, or to the digest that it has."""
    # The registry's own words would name where it is, and names of projects that the reader cannot read.
    head = service.registry.head(ref)
    if head is None:
        raise NotFoundError(f"there is no {replace(ref, digest=None)}")
    if ref.digest is not None:
        if all(entry.digest != ref.digest for entry in history(service, ref)):
            raise NotFoundError(f"{replace(ref, digest=None)} never pointed to {ref.digest.short}")
        return ref
    if head.digest is None:
        raise NotFoundError(f"{ref} was removed by {head.by} at {head.at:%Y-%m-%d %H:%M} UTC")
    return ref.pinned(head.digest)


def described(service: Service, ref: Ref) -> Description:
    """Everything about an artifact."""
    resolved(service, ref)
    return show(ref, remote=service.remote, workspace=service.workspace)


def history(service: Service, ref: Ref) -> tuple[LogEntry, ...]:
    """Every change of a tag, the oldest first."""
    return log(replace(ref, digest=None), remote=service.remote, workspace=service.workspace)


def signature(service: Service, ref: Ref) -> SignedTag | None:
    """Who vouches for a tag; None where that cannot be told."""
    tags = keys.verify(replace(ref, digest=None), remote=service.remote, workspace=service.workspace).tags
    return tags[0] if tags else None


def ancestors(service: Service, ref: Ref) -> Lineage:
    """What an artifact was derived from."""
    return lineage.lineage(ref, remote=service.remote, workspace=service.workspace)


def densities(service: Service, entries: Iterable[SearchResult]) -> Mapping[Digest, tuple[float, ...]]:
    """Density by layer of the artifacts of names."""
    digests = (entry.digest for entry in entries)
    return lineage.layer_densities(digests, remote=service.remote, workspace=service.workspace)

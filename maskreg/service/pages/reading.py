"""What a reader may see: the one place of the pages that asks the use cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from maskreg.digest import Digest
from maskreg.errors import NotFoundError
from maskreg.ref import Ref
from maskreg.service.accounts.roles import Principal, Role
from maskreg.service.context import Service
from maskreg.workspace import lineage
from maskreg.workspace.lineage import Lineage
from maskreg.workspace.log import LogEntry, log
from maskreg.workspace.search import Listed, Listing, search
from maskreg.workspace.show import Description, show


def readable(principal: Principal) -> frozenset[str] | None:
    """The projects that somebody may read; None for all."""
    if principal.server_role >= Role.READER:
        return None
    return frozenset(project for project in {*principal.grants, *principal.public} if principal.role(project))


def listing(service: Service, principal: Principal, text: str = "", **filters: Any) -> Listing:
    """Names that somebody may read; arguments as those of the use case."""
    return search(
        text or None,
        projects=readable(principal),
        advise=False,
        remote=service.remote,
        workspace=service.workspace,
        **filters,
    )


def names_of(service: Service, principal: Principal, digests: Iterable[Digest]) -> Mapping[Digest, tuple[Listed, ...]]:
    """The names of artifacts that somebody may read."""
    return {
        digest: tuple(entry for entry in listing(service, principal, str(digest)) if entry.digest == digest)
        for digest in dict.fromkeys(digests)
    }


def described(service: Service, ref: Ref) -> Description:
    """Everything about an artifact.

    Raises:
        NotFoundError: there is no such name; or its digest is none that the name ever had, which could be an artifact
            of a project that the reader may not read.
        DataError: it is damaged.
    """
    # The registry's own words would name where it is, and names of projects that the reader may not read.
    head = service.registry.head(ref)
    if head is None or head.deleted:
        raise NotFoundError(f"there is no {replace(ref, digest=None)}" if head is None else f"{ref} was removed")
    if ref.digest is not None and all(entry.digest != ref.digest for entry in history(service, ref)):
        raise NotFoundError(f"{replace(ref, digest=None)} never pointed to {ref.digest.short}")
    return show(ref, remote=service.remote, workspace=service.workspace)


def history(service: Service, ref: Ref) -> tuple[LogEntry, ...]:
    """Every change of a tag, the oldest first.

    Raises:
        NotFoundError: the tag never existed.
        CorruptError: the log is damaged.
    """
    return log(replace(ref, digest=None), remote=service.remote, workspace=service.workspace)


def ancestors(service: Service, ref: Ref) -> Lineage:
    """What an artifact was derived from.

    Raises:
        NotFoundError: there is no such artifact.
    """
    return lineage.lineage(ref, remote=service.remote, workspace=service.workspace)


def densities(service: Service, entries: Iterable[Listed]) -> Mapping[Digest, tuple[float, ...]]:
    """Density by layer of the artifacts of names."""
    digests = (entry.digest for entry in entries)
    return lineage.layer_densities(digests, remote=service.remote, workspace=service.workspace)

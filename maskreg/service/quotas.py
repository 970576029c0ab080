"""Quotas: how many artifacts and bytes a project may hold."""

from __future__ import annotations

from maskreg.digest import Digest
from maskreg.service.accounts.roles import Principal
from maskreg.service.context import Service
from maskreg.service.room import check_room
from maskreg.store.entry import RefEntry


def admit_entry(service: Service, entry: RefEntry, by: Principal) -> None:
    """Let a new entry into its project: the project exists, and has room for the artifact.

    Args:
        service: the server.
        entry: the entry.
        by: who sends it; for an admin of the server, a project that is not there yet is made.

    Raises:
        NotFoundError: there is no such project, or it was deleted.
        QuotaError: the project has no room for the artifact.
    """
    service.accounts.projects.ensure(entry.project, by)
    if entry.digest is not None:
        check_quota(service, entry.project, entry.digest)


def check_quota(service: Service, project: str, digest: Digest) -> None:
    """Check that a project has room for an artifact that the server holds.

    An artifact counts once in each project that has a tag for it. Two pushes at the same moment may together pass.

    Raises:
        NotFoundError: there is no such project.
        QuotaError: it has no room.
    """
    size = service.registry.artifact(digest).manifest.size
    check_room(service.accounts, service.registry, project, digest, size)

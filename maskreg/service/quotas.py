"""Quotas: how many artifacts and bytes a project may hold."""

from __future__ import annotations

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import QuotaError
from maskreg.service.accounts.roles import Principal
from maskreg.service.context import Service
from maskreg.store.entry import RefEntry
from maskreg.words import counted, human_bytes


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
    limits = service.accounts.projects.get(project)
    if limits.max_bytes is None and limits.max_artifacts is None:
        return
    results = service.registry.index.must_open().search(Query(project=project))
    sizes = {result.digest: result.size for result in results}
    if digest in sizes:
        return
    size = service.registry.artifact(digest).manifest.size
    used = sum(sizes.values())
    if limits.max_artifacts is not None and len(sizes) + 1 > limits.max_artifacts:
        raise QuotaError(
            f"project {project} may hold {counted(limits.max_artifacts, 'artifact')}, and has {len(sizes)}"
        )
    if limits.max_bytes is not None and used + size > limits.max_bytes:
        raise QuotaError(
            f"project {project} may hold {human_bytes(limits.max_bytes)}, has {human_bytes(used)}, "
            f"and the artifact has {human_bytes(size)}"
        )

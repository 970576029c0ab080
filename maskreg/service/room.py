"""Room in a project for one more artifact, as far as its limits say."""

from __future__ import annotations

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import QuotaError
from maskreg.registry import Registry
from maskreg.service.accounts.accounts import Accounts
from maskreg.words import counted, human_bytes


def check_room(accounts: Accounts, registry: Registry, project: str, digest: Digest, size: int) -> None:
    """Check that a project has room for an artifact.

    An artifact counts once in each project that has a tag for it, or that is charged with it on its way. Two tags that
    are set at the same moment may together pass.

    Args:
        accounts: know the limits.
        registry: what is served.
        project: gets a tag for the artifact.
        digest: the artifact.
        size: of all its objects, in bytes.

    Raises:
        NotFoundError: there is no such project.
        QuotaError: it has no room.
    """
    limits = accounts.projects.get(project)
    if limits.max_bytes is None and limits.max_artifacts is None:
        return
    results = registry.index.must_open().search(Query(project=project))
    sizes = {result.digest: result.size for result in results}
    if digest in sizes:
        return
    sizes = {**accounts.charges.of(project), **sizes}
    sizes.pop(digest, None)
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

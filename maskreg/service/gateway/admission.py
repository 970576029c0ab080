"""What a project takes: names that are free, and artifacts within its quota.

A quota counts the artifacts that tags of the project point to. Before an artifact has a name, its manifest is checked
against the quotas of the projects that its sender can write to, together with everything else that this sender has on
its way. What gets no name is collected a week later; what was uploaded by a link and not finished, an hour later.

A tag that was removed, and a name of which every tag was, are tombstones: only admins of the project set them again,
so that a name that readers know never turns into another writer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import CorruptError, NotAllowedError, QuotaError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.tags import ever_named
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.gateway.policy import ANNOUNCED, SENT, UPLOADS
from maskreg.store.reflog import RefEntry
from maskreg.words import counted, human_bytes

LIFE = timedelta(days=7)
"""How long an artifact can be on its way."""

UPLOAD_LIFE = timedelta(hours=1)
"""How long an upload by link can wait to be finished; the link itself is good for minutes."""


def sizes_in(registry: Registry, project: str) -> dict[Digest, int]:
    """The artifacts that the quota of a project counts, and their sizes in bytes."""
    results = registry.index.must_open().search(Query(project=project))
    return {result.digest: result.size for result in results}


def check_quota(accounts: Accounts, registry: Registry, project: str, digest: Digest) -> None:
    """Check that a project has room for an artifact that the server holds."""
    check_room(accounts, registry, project, digest, registry.artifact(digest).manifest.size)


def check_room(
    accounts: Accounts, registry: Registry, project: str, digest: Digest | None, size: int, *, more: int = 1
) -> None:
    """Check that a project has room for an artifact.

    An artifact counts once in each project that has a tag for it. Two tags that are set at the same moment can pass
    together.
    """
    limits = accounts.projects.get(project)
    if limits.max_bytes is None and limits.max_artifacts is None:
        return
    sizes = sizes_in(registry, project)
    if digest in sizes:
        return
    used = sum(sizes.values())
    if limits.max_artifacts is not None and len(sizes) + more > limits.max_artifacts:
        raise QuotaError(
            f"the quota of project {project} is {counted(limits.max_artifacts, 'artifact')}, and it has {len(sizes)}"
        )
    if limits.max_bytes is not None and used + size > limits.max_bytes:
        raise QuotaError(
            f"the quota of project {project} is {human_bytes(limits.max_bytes)}, it has {human_bytes(used)}, "
            f"and the artifact has {human_bytes(size)}"
        )


def check_room_somewhere(accounts: Accounts, registry: Registry, sizes: Sequence[int], principal: Principal) -> None:
    """Check that some project that a principal writes to has room for everything that the principal has on its way.

    The server's admins are not limited: the project can be missing still, and counts the artifact when it is named.
    """
    if principal.server_role >= Role.ADMIN:
        return
    refused: list[QuotaError] = []
    for project in accounts.projects.visible(principal):
        if project.deleted_at is None and principal.role(project.name) >= Role.WRITER:
            try:
                check_room(accounts, registry, project.name, None, sum(sizes), more=len(sizes))
                return
            except QuotaError as error:
                refused.append(error)
    if refused:
        raise refused[0]


def tidy(registry: Registry) -> None:
    """Delete what was sent and got no name for long, and uploads that were not finished."""
    store = registry.store
    now = store.clock()
    sent = list(store.list(SENT))
    young = {info.key.split("/")[2] for info in sent if info.modified >= now - LIFE}
    old = {info.key.split("/")[2] for info in sent} - young
    digests = {Digest(f"sha256:{name}") for name in old}
    nameless = {digest for digest in digests if not any(ever_named(registry, digest))}
    if nameless:
        collect(registry, LIFE, only=nameless, delete_many=True)
    store.delete([info.key for info in sent if info.key.split("/")[2] in old])
    for prefix, life in ((ANNOUNCED, LIFE), (UPLOADS, UPLOAD_LIFE)):
        store.delete([info.key for info in store.list(prefix) if info.modified < now - life])


def check_tombstone(registry: Registry, ref: Ref, before: RefEntry | None, principal: Principal) -> None:
    """Let only admins of the project set what was removed."""
    if principal.role(ref.project) >= Role.ADMIN:
        return
    if before is not None and before.deleted:
        subject, removed = f"{ref} was removed", ref
    elif before is None and (gone := _removed(registry, ref)):
        subject, removed = f"every tag of {ref.project}/{ref.name} was removed", gone
    else:
        return
    raise NotAllowedError(
        f"{subject}: for {principal.name} to use its name again needs the role admin in project {ref.project}",
        hint=f"choose another name, or ask an admin of {ref.project} to restore {removed}",
    )


def _removed(registry: Registry, ref: Ref) -> Ref | None:
    """A tag of the name, when none is live. A tag that cannot be read does not free the name."""
    damaged: list[CorruptError] = []
    heads = list(registry.refs.heads(damaged, project=ref.project, name=ref.name))
    if any(not head.deleted for head in heads):
        return None
    return max(heads, key=lambda head: head.at).ref if heads else ref if damaged else None

"""What a project takes: names that are free, within its quota, of artifacts that are on their way or here.

A digest belongs to no project until a tag points to it. So what is sent first, the manifest, is charged to a project
that its sender can write to and that has room for all of it::

    PUT announced/sha256/<hex>/manifest.json     charge the project, then count what it holds and is charged with:
                                                 too much, and the charge goes again
    PUT artifacts/sha256/<hex>/...               at most what the manifest says
    PUT refs/<project>/...                       the charge goes: from now on the catalog counts the artifact

Each is charged before it counts, so of two that have no room together one is refused, or both. What never got a name is
collected a week later, and what was uploaded by a link and never finished an hour later.

A tag that was removed, and a name of which every tag was, are tombstones: only admins of the project set them again.
"""

from __future__ import annotations

from datetime import timedelta

from maskreg.artifact.layout import artifact_prefix
from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import CorruptError, NotAllowedError, QuotaError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.garbage.collect import collect
from maskreg.registry.pointers import ever_named
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import Principal, Role
from maskreg.service.gateway.policy import ANNOUNCED, PRESENTED, UPLOADS
from maskreg.store.reflog import RefEntry
from maskreg.words import counted, human_bytes

LIFE = timedelta(days=7)
"""How long an artifact may be on its way."""

UPLOAD_LIFE = timedelta(hours=1)
"""How long an upload by link may wait to be finished; the link itself is good for minutes."""

_NOWHERE = "-"


def stage(accounts: Accounts, registry: Registry, digest: Digest, size: int, principal: Principal) -> None:
    """Charge an artifact that is on its way to a project that has room for it.

    Args:
        accounts: know the limits.
        registry: what is served.
        digest: the artifact.
        size: of all its objects, in bytes.
        principal: who sends it, and may write somewhere.

    Raises:
        QuotaError: no project that they may write to has room.
    """
    projects = _writable(accounts, principal)
    if not accounts.charges.projects(digest).isdisjoint(projects):
        return
    refused: list[QuotaError] = []
    for project in projects:
        accounts.charges.add(digest, project, size, registry.store.clock())
        try:
            if project != _NOWHERE:
                check_room(accounts, registry, project, digest, size)
            return
        except QuotaError as error:
            accounts.charges.drop(digest, project=project)
            refused.append(error)
    raise refused[0]


def _writable(accounts: Accounts, principal: Principal) -> list[str]:
    if principal.server_role >= Role.ADMIN:
        return [_NOWHERE]  # the project that gets it may not be there yet, and counts it when it does
    known = accounts.projects.visible(principal)
    names = [p.name for p in known if p.deleted_at is None and principal.role(p.name) >= Role.WRITER]
    return names or [_NOWHERE]


def tidy(accounts: Accounts, registry: Registry) -> None:
    """Delete what was sent and got no name for long, and uploads that nobody finished.

    Raises:
        DataError, UnavailableError: the store lists something that cannot be; nothing of an artifact is deleted.
    """
    store = registry.store
    now = store.clock()
    for prefix, life in ((ANNOUNCED, LIFE), (PRESENTED, LIFE), (UPLOADS, UPLOAD_LIFE)):
        store.delete([info.key for info in store.list(prefix) if info.modified < now - life])
    old = accounts.charges.before(now - LIFE)
    nameless = {digest for digest in old if not any(ever_named(registry, digest))}
    if nameless:
        # Chores that delete have waited where the clock may be ahead.
        collect(registry, LIFE, only=nameless, delete_many=True, trust_clock=True)
    for digest in old:
        # What was spared, because some of it is younger, is looked at again.
        if digest not in nameless or not any(store.list(artifact_prefix(digest))):
            accounts.charges.drop(digest, before=now - LIFE)


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


def check_quota(accounts: Accounts, registry: Registry, project: str, digest: Digest) -> None:
    """Check that a project has room for an artifact that the server holds."""
    check_room(accounts, registry, project, digest, registry.artifact(digest).manifest.size)


def check_tombstone(registry: Registry, ref: Ref, before: RefEntry | None, principal: Principal) -> None:
    """Let nobody but an admin of the project set what was removed.

    Args:
        registry: where.
        ref: the tag that is about to be set.
        before: its latest entry; None when it was never set.
        principal: who sets it.

    Raises:
        NotAllowedError: the tag was removed, or all tags of its name were.
        UnavailableError: the store does not answer.
    """
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
    # A tag of the name, when none is live. One that cannot be read does not free the name.
    damaged: list[CorruptError] = []
    heads = list(registry.refs.heads(damaged, project=ref.project, name=ref.name))
    if any(not head.deleted for head in heads):
        return None
    return max(heads, key=lambda head: head.at).ref if heads else ref if damaged else None

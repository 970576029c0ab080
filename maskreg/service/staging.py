"""Artifacts on their way: whose quota their bytes use before they have a name, and what becomes of those that get none.

A digest belongs to no project until a tag points to it. So what is sent first, the manifest, is charged to a project
that its sender may write to and that has room for all of it::

    PUT announced/sha256/<hex>/manifest.json     charge the project, then count what it holds and is charged with:
                                                 too much, and the charge goes again
    PUT artifacts/sha256/<hex>/...               at most what the manifest says
    PUT refs/<project>/...                       the charge goes: from now on the catalog counts the artifact

Each is charged before it counts, so of two that have no room together one is refused, or both. What never got a name is
collected a week later, and what was uploaded by a link and never finished an hour later.
"""

from __future__ import annotations

from datetime import timedelta

from maskreg.artifact.layout import artifact_prefix
from maskreg.digest import Digest
from maskreg.errors import QuotaError
from maskreg.registry import Registry
from maskreg.registry.garbage.collect import collect
from maskreg.registry.pointers import ever_named
from maskreg.service.accounts.accounts import Accounts
from maskreg.service.accounts.roles import Principal, Role
from maskreg.service.policy import ANNOUNCED, PRESENTED, UPLOADS
from maskreg.service.room import check_room

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

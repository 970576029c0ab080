"""Artifacts on their way: whose quota their bytes use before they have a name, and what becomes of those that get none.

A digest belongs to no project until a tag points to it. So what is sent first, the manifest, is charged to a project
that its sender may write to and that has room for all of it::

    PUT announced/sha256/<hex>/manifest.json     write pending/<project>/<hex>-<bytes>, then count what the project
                                                 holds and what is pending in it: too much, and the record goes again
    PUT artifacts/sha256/<hex>/...               at most what the manifest says
    PUT refs/<project>/...                       the record goes: from now on the catalog counts the artifact

Each writes its record before it counts, so of two that have no room together one is refused, or both. What never got a
name is collected a week later, and what was uploaded by a link and never finished an hour later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from maskreg.service.room import PENDING, check_room

LIFE = timedelta(days=7)
"""How long an artifact may be on its way."""

UPLOAD_LIFE = timedelta(hours=1)
"""How long an upload by link may wait to be finished; the link itself is good for minutes."""

_NOWHERE = "-"
_RECORD = re.compile(rf"{PENDING}[^/]+/([0-9a-f]{{64}})-[0-9]+")


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
    keys = {project: f"{PENDING}{project}/{digest.hex}-{size}" for project in projects}
    if any(registry.store.head(key) is not None for key in keys.values()):
        return
    refused: list[QuotaError] = []
    for project, key in keys.items():
        registry.store.put(key, b"")
        try:
            if project != _NOWHERE:
                check_room(accounts, registry, project, digest, size)
            return
        except QuotaError as error:
            registry.store.delete([key])
            refused.append(error)
    raise refused[0]


def _writable(accounts: Accounts, principal: Principal) -> list[str]:
    if principal.server_role >= Role.ADMIN:
        return [_NOWHERE]  # the project that gets it may not be there yet, and counts it when it does
    known = accounts.projects.visible(principal)
    names = [p.name for p in known if p.deleted_at is None and principal.role(p.name) >= Role.WRITER]
    return names or [_NOWHERE]


def release(registry: Registry, digest: Digest) -> None:
    """Charge an artifact to no project any more: it has a name."""
    store = registry.store
    store.delete([info.key for info in store.list(PENDING) if f"/{digest.hex}-" in info.key])


def tidy(registry: Registry) -> None:
    """Delete what was sent and got no name for long, and uploads that nobody finished.

    Raises:
        DataError, UnavailableError: the store lists something that cannot be; nothing of an artifact is deleted.
    """
    store = registry.store
    now = store.clock()
    for prefix, life in ((ANNOUNCED, LIFE), (PRESENTED, LIFE), (UPLOADS, UPLOAD_LIFE)):
        store.delete([info.key for info in store.list(prefix) if info.modified < now - life])
    old: Mapping[str, Digest] = {
        info.key: Digest(f"sha256:{match[1]}")
        for info in store.list(PENDING)
        if info.modified < now - LIFE and (match := _RECORD.fullmatch(info.key))
    }
    if not old:
        return
    nameless = {digest for digest in set(old.values()) if not any(ever_named(registry, digest))}
    if nameless:
        collect(registry, LIFE, only=nameless, delete_many=True)
    # What was spared, because some of it is younger, is looked at again.
    left = {digest for digest in nameless if any(store.list(artifact_prefix(digest)))}
    store.delete([key for key, digest in old.items() if digest not in left])

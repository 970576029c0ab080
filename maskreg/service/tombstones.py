"""Tombstones: a tag that was removed, and a name of which every tag was, are set again by admins of the project alone.

::

    toy:v1 live    toy:v2 removed        a writer sets v1, v3 and not v2
    toy:v1 removed toy:v2 removed        a writer sets none of toy: links to the name would mean something else
"""

from __future__ import annotations

from maskreg.errors import CorruptError, NotAllowedError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.service.accounts.roles import Principal, Role
from maskreg.store.reflog import RefEntry


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
        hint=f"choose another name, or ask an admin of {ref.project}: maskreg restore {removed} --remote NAME",
    )


def _removed(registry: Registry, ref: Ref) -> Ref | None:
    # A tag of the name, when none is live. One that cannot be read does not free the name.
    damaged: list[CorruptError] = []
    heads = list(registry.refs.heads(damaged, project=ref.project, name=ref.name))
    if any(not head.deleted for head in heads):
        return None
    return max(heads, key=lambda head: head.at).ref if heads else ref if damaged else None

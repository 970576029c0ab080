"""Entries of the ref log that clients of a service have made: checked here, then appended.

The client appends as it would to any store, and its one create-only write comes out here. So the rules of the log are
checked where no client can leave them out::

    the next number, and the id of the entry before it     else it exists already, or does not follow
    an immutable tag stays, and stays immutable
    signed by the project's key, where it has one          by its sender, or else by this registry
    the artifact is here, with all of every part           under the protocol with garbage collection
    appended by one create-only write                      the loser of a race is told so, as by any store
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime

from maskreg.digest import Digest
from maskreg.errors import ConflictError, CorruptError, ImmutableTagError, UsageError
from maskreg.ref import DEFAULT_TAG
from maskreg.registry.keys import MAX_SKEW, KeyDocument, fresh_key, parse_heads
from maskreg.registry.registry import Registry
from maskreg.registry.settle import in_place
from maskreg.store.reflog import RefEntry


def admit(registry: Registry, entry: RefEntry) -> bool:
    """Append an entry that a client has made; False when there is an entry of its number already."""
    before = registry.refs.head(entry.ref)
    if before is not None and entry.n <= before.n:
        return False
    now = datetime.now(UTC)
    if abs(entry.at - now) > MAX_SKEW:
        raise UsageError(
            f"{entry.key}: it is of {entry.at:%Y-%m-%d %H:%M:%S} UTC, and the clock of the server says "
            f"{now:%Y-%m-%d %H:%M:%S} UTC",
            hint="set the clock of the machine that is wrong",
        )
    if before is None and entry.digest is None:
        raise UsageError(f"{entry.key}: there is no {entry.ref} to remove")
    if entry.project in registry.immutable_projects and entry.tag != DEFAULT_TAG and not entry.immutable:
        raise ImmutableTagError(
            f"tags of project {entry.project} are immutable here, and this entry does not make {entry.ref} so",
            immutable_project=entry.project,
        )
    registry.ensure_uuid()
    if entry.signer is None:
        entry = registry.trust.sign(entry)
    else:
        registry.trust.check(entry)
    with in_place(registry.store, entry.digest) if entry.digest else nullcontext():
        written = registry.refs.accept(entry, before)
    if written:
        registry.index.note(entry, action_of(entry, before))
    return written


def admit_key(registry: Registry, key: str, data: bytes, *, by: str) -> bool:
    """Write the next public key of a project, a list that it names, or a newer statement of freshness.

    Returns:
        Whether it was written; False when there is one already, or a newer statement.
    """
    folder, _, name = key.rpartition("/")
    if folder.endswith("/heads"):
        digest = Digest(f"sha256:{name.removesuffix('.json')}")
        parse_heads(key, data, digest)
        return registry.store.create(key, data)
    if key == fresh_key(project := folder.rpartition("/")[2]):
        return registry.trust.accept_renewal(project, data)
    document = KeyDocument.parse(key, data)
    if document.by != by:
        raise UsageError(f"{key}: it says that it is by {document.by!r}, and {by} sent it")
    if document.registry != registry.ensure_uuid():
        raise CorruptError(key, f"it is a key of another registry, {document.registry}")
    latest = registry.trust.log.numbers().get(document.project, 0)
    if document.n <= latest:
        return False
    before = registry.trust.log.read(document.project, latest) if latest else None
    if document.n != latest + 1 or (before is not None and not document.follows(before)):
        raise ConflictError(f"{key}: it does not follow from key {latest}", project=document.project)
    return registry.store.create(key, data)


def action_of(entry: RefEntry, before: RefEntry | None) -> str:
    """What an entry does to its tag, in the words of the audit log."""
    if entry.deleted:
        return "remove"
    if before is None or before.last_digest != entry.digest:
        return "publish"
    return "restore" if before.deleted else "annotate"

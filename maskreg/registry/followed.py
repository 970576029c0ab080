"""Which artifact of a remote's tag this machine builds on, so that a push never moves a tag over what it does not know.

A pull or push of a tag leaves, in the local registry's store::

    followed/<uuid>/<project>/<name>/<tag>.json    the artifact that the tag pointed to

A later push may move the tag from that artifact to another one, and from no other::

    ada   push x:v1   -> A     the tag is new          ada follows A
    bob   push x:v1   -> B     bob follows nothing     refused: the tag is at A, which ada set
    bob   push --force         on purpose: B           bob follows B
    ada   push x:v1   -> A     ada follows A           refused: the tag is at B, which bob set

The record names both artifacts while an entry is being written, so that a push that breaks off between the entry and
the record is not taken for another user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from maskreg.digest import Digest, parse_sealed, sealed
from maskreg.errors import (
    CannotCreateError,
    ConflictError,
    CorruptError,
    DataError,
    NotAllowedError,
    NotFoundError,
    UnavailableError,
)
from maskreg.limits import LIMITS
from maskreg.ref import Ref
from maskreg.registry.registry import Registry
from maskreg.store.base import Store
from maskreg.store.chain import removal
from maskreg.store.entry import RefEntry

FOLLOWED = "followed/"
"""Prefix of the records in a local registry."""

_SCHEMA = "maskreg.followed/1"


def follow(local: Registry, remote: Registry, ref: Ref, *digests: Digest) -> None:
    """Remember what a tag of a remote points to, or is about to; a read-only local registry remembers nothing."""
    key = _key(remote, ref)
    data = sealed({"schema": _SCHEMA, "registry": remote.uuid, "tag": ref.path, "digests": sorted(set(digests))})
    try:
        if local.store.get(key, max_bytes=LIMITS.ref_bytes) == data:
            return
    except (NotFoundError, DataError):
        pass
    # Without the record a later push asks for --force, and loses nothing.
    with suppress(CannotCreateError, NotAllowedError, UnavailableError):
        local.store.put(key, data)


def followed(local: Registry, remote: Registry, ref: Ref) -> frozenset[Digest]:
    """What this machine knows that a tag of a remote points to; empty when it neither pulled nor pushed the tag."""
    return _read(local.store, _key(remote, ref))


def is_followed(local: Registry, ref: Ref) -> bool:
    """Whether this machine has pulled the tag from a remote or pushed it to one."""
    return any(info.key.endswith(f"/{ref.path}.json") for info in local.store.list(FOLLOWED))


def damaged_records(store: Store) -> Iterator[CorruptError]:
    """The records of a local registry that cannot be read, or belong to another tag; by key."""
    for key in sorted(info.key for info in store.list(FOLLOWED)):
        if not key.rpartition("/")[2].startswith("."):
            try:
                _read(store, key)
            except CorruptError as error:
                yield error


def _read(store: Store, key: str) -> frozenset[Digest]:
    try:
        row = parse_sealed(store.get(key, max_bytes=LIMITS.ref_bytes), key, schema=_SCHEMA, max_bytes=LIMITS.ref_bytes)
        if key != f"{FOLLOWED}{row['registry']}/{row['tag']}.json":
            raise CorruptError(key, f"it is the record of {row['tag']}", hint=removal(store.url, key))
        return frozenset(Digest(digest) for digest in row["digests"])
    except NotFoundError:
        return frozenset()
    except CorruptError as error:
        error.hint = error.hint or removal(store.url, key)
        raise
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise CorruptError(key, f"this record cannot be read ({error})", hint=removal(store.url, key)) from error


def check_follows(registries: tuple[Registry, Registry], ref: Ref, digest: Digest, head: RefEntry | None) -> None:
    """Refuse to move a tag of a remote from an artifact that this machine did not know it pointed to."""
    local, remote = registries
    if head is None or head.digest in (None, digest) or head.digest in followed(local, remote, ref):
        return
    assert head.digest is not None  # for type checkers: it is not in the tuple
    ours = local.head(replace(ref, digest=None))
    if ours is None or ours.deleted or (remote.uuid and ours.origin == remote.uuid):
        step, theirs = "to take theirs", ref
    else:
        step, theirs = "to see theirs", replace(ref, digest=head.digest)
    raise ConflictError(
        f"{ref} on {remote.name} is {head.digest.short}, set by {head.by} at {head.at:%Y-%m-%d %H:%M:%S} UTC; "
        f"moving it to {digest.short} would undo that, because this registry neither pulled nor pushed it",
        hint=step,
        theirs=theirs,
        remote=remote.name,
        options={"force": True},
    )


def _key(remote: Registry, ref: Ref) -> str:
    return f"{FOLLOWED}{remote.uuid}/{ref.path}.json"

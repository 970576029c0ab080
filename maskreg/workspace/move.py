"""Move: give a tag, or a name with all its tags, another name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from maskreg.digest import Digest
from maskreg.errors import ConflictError, NotAllowedError, NotFoundError, UsageError, prefixed
from maskreg.ref import DEFAULT_TAG, Ref
from maskreg.registry import Registry, tags
from maskreg.result import Result
from maskreg.store.chain import check_movable
from maskreg.store.reflog import RefEntry
from maskreg.workspace.storing import note_catalog, note_move
from maskreg.workspace.workspace import ArtifactLike, Workspace, as_name, opened


@dataclass(frozen=True)
class Moved(Result):
    """A tag that has another name now.

    Attributes:
        old: the name that was removed; its history stays, and ``restore`` brings it back.
        new: the name that it has now.
        digest: the artifact.
    """

    old: Ref
    new: Ref
    digest: Digest
    was: Digest | None


def mv(
    artifact: ArtifactLike,
    new: str | Ref,
    *,
    all_tags: bool = False,
    force: bool = False,
    remote: str | None = None,
    workspace: Workspace | None = None,
) -> tuple[Moved, ...]:
    """Rename a tag: the new name gets the artifact and its card, then the old one is removed.

    Nothing is lost: the history of the old name stays, and so does what the new one pointed to. What is renamed here
    keeps its old name on remotes, and the other way round. Between the two steps both names are there; after an
    interruption the same call removes the old one.

    Args:
        new: ``[project/]name[:tag]``; without a tag the old one is kept.
        all_tags: move every tag of the name; ``new`` has no tag then.
        force: replace a name that points to another artifact.
        remote: rename it on this remote instead of in the local registry.

    Returns:
        What was moved, in the order of the tags.

    Raises:
        UsageError: both names are the same, or ``new`` has a digest, or a tag beside ``all_tags``.
        ImmutableTagError: the new name must not move to another artifact; nothing was moved.
        NotAllowedError: a service does not let this token remove the old name, or set the new one; nothing was moved.
    """
    with opened(workspace) as space:
        registry = space.registry(remote)
        old = space.name_of(artifact, registry)
        name = as_name(new)
        has_tag = name.tag != DEFAULT_TAG or str(new).endswith(f":{DEFAULT_TAG}")
        if all_tags and has_tag:
            raise UsageError(f"all tags keep theirs, so the new name has none: {replace(name, tag=DEFAULT_TAG)}")
        olds = _tags(registry, old) if all_tags else [old]
        pairs = [(item, name if has_tag else name.with_tag(item.tag)) for item in olds]
        plan = [_planned(space, registry, pair, force) for pair in pairs]
        moved = [
            _move(space, registry, target, (entry, head))
            for (_, target), (entry, head) in zip(pairs, plan, strict=True)
        ]
        note_catalog(space, registry)
        return tuple(moved)


def _tags(registry: Registry, old: Ref) -> list[Ref]:
    live = (entry.ref for entry in registry.refs.heads([]) if not entry.deleted)
    refs = sorted(ref for ref in live if (ref.project, ref.name) == (old.project, old.name))
    if not refs:
        raise NotFoundError(
            f"there is no {replace(old, tag=DEFAULT_TAG)} in {registry.name}", remote=registry.remote_name
        )
    return refs


def _planned(
    space: Workspace, registry: Registry, pair: tuple[Ref, Ref], force: bool
) -> tuple[RefEntry, RefEntry | None]:
    # Every pair is checked before the first is moved.
    old, new = pair
    entry = registry.live(old)
    if old.digest not in (None, entry.digest):
        raise NotFoundError(
            f"{entry.ref} does not point to {old.digest}", history=entry.ref, remote=registry.remote_name
        )
    if entry.ref == new:
        raise UsageError(f"{new} is its name already")
    if (service := registry.store.service) is not None and not service.may_remove(old.project):
        raise NotAllowedError(
            f"renaming {entry.ref} removes that name, which needs the role admin in project {old.project} at "
            f"{registry.name}; nothing was moved",
            hint="an admin can remove a name; to have both names",
            both=entry.ref,
            other=new,
            remote=registry.name,
        )
    head = registry.head(new)
    assert entry.digest is not None  # it is live
    check_movable(head, entry.digest)
    if head is not None and head.digest not in (None, entry.digest) and not force:
        assert head.digest is not None  # for type checkers: it is not in the tuple
        raise ConflictError(
            f"{new} is {head.digest.short} already; its history would keep that", options={"force": True}
        )
    return entry, head


def _move(space: Workspace, registry: Registry, new: Ref, now: tuple[RefEntry, RefEntry | None]) -> Moved:
    entry, head = now
    assert entry.digest is not None  # it is live
    registry.publish(
        new, entry.digest, card=entry.card, after=head, origin=entry.origin, immutable=entry.immutable or None
    )
    with prefixed(f"{entry.ref} and {new} both name {entry.digest.short} now: "):
        removed = tags.remove(registry, replace(entry.ref, digest=entry.digest))
    return Moved(removed.ref, new, entry.digest, note_move(space, new, head, entry.digest))

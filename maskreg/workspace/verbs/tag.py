"""Tag: give an artifact names, take them away and bring them back, and change what is said under them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from maskreg.digest import Digest
from maskreg.errors import ConflictError, NotAllowedError, NotFoundError, UsageError, prefixed
from maskreg.ref import DEFAULT_TAG, Card, Ref
from maskreg.registry import Registry, tags
from maskreg.registry.tags import Expected, check_expected
from maskreg.registry.tags import annotate as set_card
from maskreg.registry.tags import tag as set_tag
from maskreg.result import Result
from maskreg.store.chain import check_movable
from maskreg.store.reflog import RefEntry
from maskreg.workspace.storing import note_catalog, note_move
from maskreg.workspace.verbs.extract import CardOptions
from maskreg.workspace.workspace import ArtifactLike, Workspace, as_name, opened, registry_of

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact


@dataclass(frozen=True)
class Tagged(Result):
    """A name of an artifact.

    Attributes:
        immutable: whether the name must never point to another artifact.
    """

    ref: Ref
    digest: Digest
    n: int
    immutable: bool
    was: Digest | None = None

    @classmethod
    def of(cls, entry: RefEntry, after: RefEntry | None = None) -> Tagged:
        """From an entry of the log; of a removed name, what it pointed to."""
        digest = entry.last_digest
        assert digest is not None
        was = after.digest if after is not None and not entry.deleted and after.digest != digest else None
        return cls(entry.ref, digest, entry.n, entry.immutable, was)


def tag(
    artifact: ArtifactLike,
    *names: str | Ref,
    immutable: bool = False,
    card: Card | None = None,
    remote: str | None = None,
    by: str = "",
    expected: Expected = None,
    workspace: Workspace | None = None,
) -> tuple[Tagged, ...]:
    """Give an artifact more names. It keeps those that it has; a name that exists moves, unless it is immutable.

    Args:
        names: a tag of the same name, such as ``v3``; or a whole reference when it holds a ``/`` or a ``:``.
        immutable: the names must never point to another artifact again. This cannot be undone: after a removal, only
            the same artifact can get the name.
        card: what people say about the artifact; by default as under the name that was given, and nothing for a digest.
        expected: id of the names' latest entry, or ``absent`` for names that are not set; if that is not so by now,
            none is set.

    Returns:
        The new names, in order.

    Raises:
        UsageError: no name, one with a digest, or a tag alone for an artifact without a name.
        StaleError: a name is not as expected.
        ImmutableTagError: a name must not move to another artifact; none was set.
    """
    if not names:
        raise UsageError("no new name was given", hint="pass a tag, or [project/]name[:tag]")
    with opened(workspace) as space:
        registry, fixed = space.registry(remote), immutable or None
        parsed = space.parse(artifact, registry)
        ref = parsed if isinstance(parsed, Ref) else None
        new = [_name(parsed, name) for name in names]
        heads = [registry.head(name) for name in new]
        named = space.find(parsed, remote) if ref is None else None
        try:
            digest = named.digest if named is not None else registry.resolve(parsed).digest  # type: ignore[arg-type]
        except NotFoundError as error:
            if len(new) == 1 and heads[0] is not None:
                error.hint = "the artifact comes first"
                error.facts = {"swapped": names[0], "with": parsed, "remote": registry.remote_name}
            raise
        for name, head in zip(new, heads, strict=True):
            check_expected(name, head, expected)
            check_movable(head, digest)
        tagged = []
        for name, head in zip(new, heads, strict=True):
            if card is None and named is None:
                assert ref is not None  # given by name
                entry = set_tag(registry, ref, name, after=head, immutable=fixed, by=by)
            else:
                said = card if card is not None else named.card if named is not None else Card()
                entry = registry.publish(name, digest, card=said.checked(), after=head, immutable=fixed, by=by)
            tagged.append(Tagged.of(entry, head))
            note_move(space, entry.ref, head, tagged[-1].digest)
        note_catalog(space, registry)
        return tuple(tagged)


def _name(artifact: Ref | Digest | Artifact, name: str | Ref) -> Ref:
    if isinstance(name, str) and "/" not in name and ":" not in name:
        if not isinstance(artifact, Ref):
            digest = artifact if isinstance(artifact, Digest) else artifact.digest
            fault = f"an artifact that is given by its digest cannot get the tag {name!r} alone"
            raise UsageError(fault, unnamed=digest.short, name=f"NAME:{name}")
        return artifact.with_tag(name)
    return as_name(name)


def remove(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    by: str = "",
    expected: Expected = None,
    workspace: Workspace | None = None,
) -> Tagged:
    """Remove a name. :func:`restore` brings it back until :func:`gc` has deleted the artifact.

    Returns:
        The name, and the artifact that it pointed to.
    """
    return _changed(tags.remove, artifact, remote, workspace, by=by, expected=expected)


def restore(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    by: str = "",
    expected: Expected = None,
    workspace: Workspace | None = None,
) -> Tagged:
    """Bring a removed name back as it was.

    Raises:
        UsageError: the name was not removed, or an artifact without a name.
        NotFoundError: the name never existed, or its artifact was deleted.
    """
    return _changed(tags.restore, artifact, remote, workspace, by=by, expected=expected)


def _changed(
    change: Callable[..., RefEntry], artifact: ArtifactLike, remote: str | None, workspace: Workspace | None, **how: Any
) -> Tagged:
    with registry_of(remote, workspace) as (space, registry):
        entry = change(registry, space.name_of(artifact, registry), **how)
        note_catalog(space, registry)
        return Tagged.of(entry)


@dataclass(frozen=True)
class Annotated(Result):
    """A name whose card was changed."""

    ref: Ref
    digest: Digest
    n: int
    card: Card


def annotate(
    artifact: ArtifactLike,
    *,
    remote: str | None = None,
    by: str = "",
    expected: Expected = None,
    workspace: Workspace | None = None,
    **card: Unpack[CardOptions],
) -> Annotated:
    """Change the card of an artifact. The artifact and its digest stay the same.

    Args:
        card: what to change, see :class:`CardOptions`; an empty text removes it, and an empty value a key of ``meta``.

    Raises:
        UsageError: nothing to change; a text that is too long or holds control characters; an artifact without a name.
    """
    meta = card.get("meta")
    given: dict[str, Any] = {name: text for name, text in card.items() if name != "meta" and text is not None}
    if not meta and not given:
        raise UsageError(
            "nothing to change: give a family, method, license, description, README or meta",
            options={"family": None, "method": None},
        )
    # Any key can be removed: a card from another registry can hold keys that annotate would refuse to write.
    added = {key: value for key, value in (meta or {}).items() if value}
    Card(**given, meta=added).checked()
    with registry_of(remote, workspace) as (space, registry):
        ref = space.name_of(artifact, registry)
        entry = set_card(registry, ref, given, meta=meta, by=by, expected=expected)
        note_catalog(space, registry)
    assert entry.digest is not None  # a removed tag has no card to change
    return Annotated(entry.ref, entry.digest, entry.n, entry.card)


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

    Returns:
        What was moved, in the order of the tags.

    Raises:
        UsageError: both names are the same, or ``new`` has a digest, or a tag beside ``all_tags``.
        ImmutableTagError: the new name must not move to another artifact; nothing was moved.
        NotAllowedError: a service does not let this token remove the old name, or set the new one; nothing was moved.
    """
    with registry_of(remote, workspace) as (space, registry):
        old = space.name_of(artifact, registry)
        name = as_name(new)
        has_tag = name.tag != DEFAULT_TAG or str(new).endswith(f":{DEFAULT_TAG}")
        if all_tags and has_tag:
            raise UsageError(f"all tags keep theirs, so the new name has none: {replace(name, tag=DEFAULT_TAG)}")
        olds = _tags(registry, old) if all_tags else [old]
        pairs = [(item, name if has_tag else name.with_tag(item.tag)) for item in olds]
        plan = [_planned(registry, pair, force) for pair in pairs]
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


def _planned(registry: Registry, pair: tuple[Ref, Ref], force: bool) -> tuple[RefEntry, RefEntry | None]:
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
    with prefixed(f"{new} names {entry.digest.short} now: "):
        removed = tags.remove(registry, replace(entry.ref, digest=entry.digest))
    return Moved(removed.ref, new, entry.digest, note_move(space, new, head, entry.digest))

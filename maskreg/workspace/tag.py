"""Tag: give an artifact more names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maskreg.digest import Digest
from maskreg.errors import NotFoundError, UsageError
from maskreg.ref import Card, Ref
from maskreg.registry import tags
from maskreg.registry.tags import Expected, check_expected
from maskreg.registry.tags import annotate as set_card
from maskreg.registry.tags import tag as set_tag
from maskreg.result import Result
from maskreg.store.chain import check_movable
from maskreg.store.reflog import RefEntry
from maskreg.workspace.storing import note_catalog, note_move
from maskreg.workspace.workspace import ArtifactLike, Workspace, as_name, opened

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
    with opened(workspace) as space:
        registry = space.registry(remote)
        ref = space.name_of(artifact, registry)
        entry = tags.remove(registry, ref, by=by, expected=expected)
        note_catalog(space, registry)
        return Tagged.of(entry)


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
    with opened(workspace) as space:
        registry = space.registry(remote)
        ref = space.name_of(artifact, registry)
        entry = tags.restore(registry, ref, by=by, expected=expected)
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
    family: str | None = None,
    method: str | None = None,
    license: str | None = None,
    description: str | None = None,
    meta: Mapping[str, str] | None = None,
    remote: str | None = None,
    by: str = "",
    expected: Expected = None,
    workspace: Workspace | None = None,
) -> Annotated:
    """Change the card of an artifact. The artifact and its digest stay the same.

    Args:
        family: model family, such as ``qwen3-8b``; None keeps it, an empty text removes it; likewise below.
        method: how the target was trained: ``opd``, ``rlvr``, ``sft`` or another word.
        license: SPDX identifier.
        meta: run metadata to add or replace; an empty value removes the key.

    Raises:
        UsageError: nothing to change; a text that is too long or holds control characters; an artifact without a name.
    """
    if not meta and family is method is license is description is None:
        raise UsageError(
            "nothing to change: give a family, method, license, description or meta",
            options={"family": "qwen3-8b", "method": "opd"},
        )
    # Any key may be removed: a card from another registry can hold keys that annotate would refuse to write.
    added = {key: value for key, value in (meta or {}).items() if value}
    Card(family or "", method or "", license or "", description or "", added).checked()
    with opened(workspace) as space:
        registry = space.registry(remote)
        ref = space.name_of(artifact, registry)
        fields = {"family": family, "method": method, "license": license, "description": description}
        entry = set_card(registry, ref, **fields, meta=meta, by=by, expected=expected)
        note_catalog(space, registry)
    assert entry.digest is not None  # a removed tag has no card to change
    return Annotated(entry.ref, entry.digest, entry.n, entry.card)

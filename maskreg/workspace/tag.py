"""Tag: give an artifact more names."""

from __future__ import annotations

from dataclasses import dataclass

from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.ref import Ref
from maskreg.registry.tags import tag as set_tag
from maskreg.result import Result
from maskreg.store.reflog import RefEntry
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.workspace import ArtifactLike, Workspace, as_name, opened


@dataclass(frozen=True)
class Tagged(Result):
    """A name of an artifact.

    Attributes:
        ref: the name.
        digest: the artifact that it points to.
        n: number of the entry in the name's log, from 1.
    """

    ref: Ref
    digest: Digest
    n: int

    @classmethod
    def of(cls, entry: RefEntry, digest: Digest | None = None) -> Tagged:
        """From an entry of the log; ``digest`` where the entry has none, because it removes the name."""
        digest = entry.digest or digest
        assert digest is not None
        return cls(entry.ref, digest, entry.n)


def tag(artifact: ArtifactLike, *names: str | Ref, workspace: Workspace | None = None) -> tuple[Tagged, ...]:
    """Give an artifact more names. It keeps those that it has; a name that exists moves.

    Args:
        artifact: a reference, a digest or an open artifact.
        names: a tag of the same name, such as ``v3``; or a whole reference when it holds a ``/`` or a ``:``.
        workspace: where the artifact is; by default the local registry of the settings.

    Returns:
        The new names, in order.

    Raises:
        BadRefError: a name that does not follow the grammar.
        UsageError: no name, one with a digest, or a tag alone for an artifact without a name.
        NotFoundError: there is no such artifact.
        ConflictError: a name was moved concurrently.
    """
    if not names:
        raise UsageError("no new name was given", hint="pass a tag, or [project/]name[:tag]")
    with opened(workspace) as space:
        ref = space.known_name(artifact)
        new = [_name(ref, name) for name in names]
        if ref is not None:
            entries = [set_tag(space.local, ref, name) for name in new]
        else:
            heads = [space.local.head(name) for name in new]
            named = space.find(artifact)
            entries = [
                space.local.publish(name, named.artifact.digest, card=named.card, after=head)
                for name, head in zip(new, heads, strict=True)
            ]
        note_catalog(space, space.local)
        return tuple(Tagged.of(entry) for entry in entries)


def _name(ref: Ref | None, name: str | Ref) -> Ref:
    if isinstance(name, str) and "/" not in name and ":" not in name:
        if ref is None:
            raise UsageError(f"an artifact without a name cannot get the tag {name!r} alone", hint=f"NAME:{name}")
        return ref.with_tag(name)
    return as_name(name)

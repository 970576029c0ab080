"""Annotate: change the card of an artifact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.ref import Card, Ref
from maskreg.registry.tags import Expected
from maskreg.registry.tags import annotate as set_card
from maskreg.result import Result
from maskreg.workspace.storing import note_catalog
from maskreg.workspace.workspace import ArtifactLike, Workspace, opened


@dataclass(frozen=True)
class Annotated(Result):
    """A name whose card was changed.

    Attributes:
        ref: the name.
        digest: the artifact that it points to.
        n: number of the entry in the name's log.
        card: the card from now on.
    """

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
        artifact: a reference, or the result that named the artifact.
        family: model family, such as ``qwen3-8b``; None keeps it, an empty text removes it; likewise below.
        method: how the target was trained: ``opd``, ``rlvr``, ``sft`` or another word.
        license: SPDX identifier.
        description: one paragraph for people.
        meta: run metadata to add or replace; an empty value removes the key.
        remote: annotate on this remote instead of in the local registry.
        by: who does it, as the log records it; by default the user of this process.
        expected: id of the tag's latest entry; if it is another by now, nothing is changed.
        workspace: where the artifact is; by default what the settings say.

    Raises:
        UsageError: nothing to change; a text that is too long or holds control characters; an artifact without a name.
        NotFoundError: there is no such tag, or it points to another digest than the reference says.
        StaleError: the tag is not at the expected entry.
        ConflictError: the tag was moved concurrently.
        ConfigError: there is no such remote.
        UnavailableError: the remote does not answer, or offline is set.
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

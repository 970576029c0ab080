"""Combine: make a new mask of several masks of one source, and give it a name."""

from __future__ import annotations

from collections.abc import Sequence

from maskreg.progress import SILENT, Progress
from maskreg.ref import Card, Ref
from maskreg.workspace.storing import Naming, Stored, require_different, shared_family
from maskreg.workspace.workspace import ArtifactLike, Workspace, opened


def combine(
    masks: Sequence[ArtifactLike],
    name: str | Ref | None = None,
    *,
    how: str = "",
    at_least: int = 0,
    description: str = "",
    allow_different: bool = False,
    force: bool = False,
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Stored:
    """Combine masks of one source into a new mask, and store it in the local registry.

    The result names the masks it was made of as its parents, in order.

    Args:
        how: ``and`` (coordinates in all), ``or`` (in any), ``minus`` (in the first alone) or ``xor`` (in one of two).
        at_least: coordinates in this many masks or more, in place of ``how``.

    Raises:
        UsageError: an unknown operation, or not of so many masks.
    """
    from maskreg.flow.masks import combine as combine_masks

    card = Card(description=description).checked()
    with opened(workspace) as space:
        naming = Naming(space, name, careful=not force)
        operands = [space.find(mask) for mask in masks]
        require_different(operands)
        derived = Card(shared_family(operands)).checked()
        artifacts = [operand.artifact for operand in operands]
        digest = combine_masks(
            artifacts, space.root, how=how, k=at_least, allow_different=allow_different, progress=progress
        )
        return naming.store(digest, card, derived=derived)

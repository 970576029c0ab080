"""Several artifacts in one command: each must exist before the first is touched, and a pattern stands for many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import NotFoundError, UsageError
from maskreg.ref import DEFAULT_PROJECT, Pattern, Ref, is_pattern
from maskreg.words import natural
from maskreg.workspace.workspace import ArtifactLike, Named, Workspace


def tags_of(workspace: Workspace, artifacts: Sequence[ArtifactLike], remote: str | None = None) -> tuple[Ref, ...]:
    """The tags of several artifacts of one registry, each with the digest that it points to now; each once."""
    refs = []
    registry = workspace.registry(remote)
    for artifact in artifacts:
        ref = workspace.name_of(artifact, registry)
        refs.append(replace(ref, digest=registry.resolve(ref).digest))
    return tuple(dict.fromkeys(refs))


def expanded(
    workspace: Workspace, artifacts: Sequence[ArtifactLike], remote: str | None = None, *, without: Ref | None = None
) -> tuple[ArtifactLike, ...]:
    """Artifacts, with the tags that a pattern matches in its place, step 2 before step 10.

    What was named by itself is not taken again for a pattern, and analyses are left out: they are no masks. A pattern
    without a project is of the default one, as a reference is::

        base 'team/run:step-*'    ->    base team/run:step-2 team/run:step-10 team/run:step-100
    """
    taken = {str(artifact) for artifact in artifacts}
    if without is not None:
        taken.add(str(replace(without, digest=None)))
    result: list[ArtifactLike] = []
    for artifact in artifacts:
        if isinstance(artifact, Digest) or not isinstance(artifact, str) or not is_pattern(artifact):
            result.append(artifact)
            continue
        refs = [ref for ref in _matching(workspace, artifact, remote) if str(ref) not in taken]
        taken |= {str(ref) for ref in refs}
        result += refs
    return tuple(result)


def masks_of(
    workspace: Workspace, masks: Sequence[ArtifactLike], remote: str | None, *, what: str
) -> tuple[Named, ...]:
    """Masks that are counted together, patterns expanded; two or more, each with its mask part."""
    named = tuple(workspace.find(mask, remote) for mask in expanded(workspace, masks, remote))
    if len(named) < 2:
        raise UsageError(f"{what} needs two masks or more")
    for mask in named:
        mask.artifact.require("mask")
    return named


def _matching(workspace: Workspace, text: str, remote: str | None) -> list[Ref]:
    pattern = Pattern.parse(text if "/" in text else f"{DEFAULT_PROJECT}/{text}")
    assert pattern is not None  # it has a slash
    registry = workspace.registry(remote)
    rows = registry.search(Query(sort="name", filters=pattern.fixed)).results
    refs = [row.ref for row in rows if row.kind != "analysis" and pattern.matches(row.ref, row.digest)]
    if not refs:
        raise NotFoundError(f"nothing in {registry.name} matches {text}", remote=registry.remote_name)
    return sorted(refs, key=lambda ref: (ref.project, ref.name, natural(ref.tag)))

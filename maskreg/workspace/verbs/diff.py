"""Diff: what changed between two artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maskreg.checkpoint.roles import ALL, Selection
from maskreg.digest import Digest
from maskreg.progress import SILENT, Progress
from maskreg.result import Result
from maskreg.workspace.workspace import ArtifactLike, Named, Workspace, opened

if TYPE_CHECKING:
    from maskreg.artifact.manifest import Group
    from maskreg.artifact.reader import Artifact
    from maskreg.artifact.tensors import Tensor

_SPAN = 1 << 25
"""Coordinates at a time: 4 MiB of each mask."""


@dataclass(frozen=True)
class Change(Result):
    """A value that differs.

    Attributes:
        name: of the field, of the tensor, or of the role.
        a, b: the value in each artifact; None where it has none.
    """

    name: str
    a: str | float | None
    b: str | float | None


@dataclass(frozen=True)
class MaskCounts(Result):
    """Coordinates of the tensors that both artifacts cover.

    Attributes:
        only_a, only_b: in one mask alone.
        both: in both.
    """

    only_a: int
    only_b: int
    both: int


@dataclass(frozen=True)
class Difference(Result):
    """What changed between two artifacts, A and B.

    Attributes:
        a, b: what they are called.
        digests: of both.
        same_source, same_target: whether the checkpoints have the same weights.
        fields: values of manifest and card that differ.
        added: tensors that only B has.
        removed: tensors that only A has.
        changed: tensors whose shape or dtype differs, on either side.
        roles: density by role, also where it is the same.
        masks: how the masks overlap; None where a mask is not in the local registry.
    """

    a: str
    b: str
    digests: tuple[Digest, Digest]
    same_source: bool
    same_target: bool
    fields: tuple[Change, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[Change, ...]
    roles: tuple[Change, ...]
    masks: MaskCounts | None
    notes: tuple[str, ...]
    selection: Selection = ALL


def diff(
    a: ArtifactLike,
    b: ArtifactLike,
    *,
    roles: Sequence[str] = (),
    layers: str = "",
    progress: Progress = SILENT,
    workspace: Workspace | None = None,
) -> Difference:
    """List what changed between two artifacts, such as two tags of one name.

    No checkpoint is read; memory is bounded, whatever the size of the masks. How much of an overlap is chance says
    :func:`compare`.

    Args:
        a: the earlier artifact: a reference, a digest or an open artifact.
        b: the later one.
    """
    from maskreg.artifact.scope import selected_rows, shapes_of
    from maskreg.artifact.totals import totals_of

    selection = Selection.parse(roles, layers)
    with opened(workspace) as space:
        first, second = space.find(a), space.find(b)
        left, right = first.artifact, second.artifact
        same_source = left.manifest.source.root == right.manifest.source.root
        # Tensors that only the other has may be named too: they were added, or removed.
        before = {row.name: row for row in selected_rows(left, selection, besides=shapes_of(right))}
        after = {row.name: row for row in selected_rows(right, selection, besides=shapes_of(left))}
        # What is a tensor of its own in one may be tied in the other.
        pairs = ((row, after.get(name) or right.by_name.get(name)) for name, row in before.items())
        rows = [(row, other) for row, other in pairs if other is not None]
        totals = [
            totals_of(own.values()) if selection else artifact.manifest.totals
            for artifact, own in ((left, before), (right, after))
        ]
        notes = [] if same_source else ["the sources differ, so these artifacts are not of one lineage"]
        has_masks = all("mask" in artifact.present() for artifact in (left, right))
        if not has_masks:
            notes.append("a mask is not in the local registry, so the masks were not counted")
        return Difference(
            *(first.name, second.name, (first.digest, second.digest)),
            same_source=same_source,
            same_target=left.manifest.target.root == right.manifest.target.root,
            fields=_changes(_fields(first), _fields(second)),
            added=tuple(name for name in after if name not in left.by_name and name not in before),
            removed=tuple(name for name in before if name not in right.by_name and name not in after),
            changed=_changes({x.name: _form(x) for x, _ in rows}, {x.name: _form(y) for x, y in rows}),
            roles=tuple(_roles(*(each.roles for each in totals))),
            masks=_count(left, right, rows, progress) if has_masks else None,
            notes=tuple(notes),
            selection=selection,
        )


def _fields(named: Named) -> dict[str, str | int]:
    manifest, card = named.manifest, named.card
    values: dict[str, str | int] = {
        "kind": manifest.kind,
        "rule": manifest.rule,
        "encoder": manifest.encoder,
        "exact": str(manifest.exact),
        "source": manifest.source.root,
        "source hub id": manifest.source.hub,
        "target": manifest.target.root,
        "target hub id": manifest.target.hub,
        "parents": ", ".join(manifest.parents),
        "parts": ", ".join(sorted(manifest.parts)),
        "size": manifest.size,
        "moved": manifest.totals.nnz,
        "coordinates": manifest.totals.numel,
        "family": card.family,
        "method": card.method,
        "license": card.license,
        "description": card.description,
        **{f"meta {key}": value for key, value in card.meta.items()},
    }
    return {name: value for name, value in values.items() if value != ""}


def _changes(a: Mapping[str, str | int], b: Mapping[str, str | int]) -> tuple[Change, ...]:
    return tuple(Change(name, a.get(name), b.get(name)) for name in {**a, **b} if a.get(name) != b.get(name))


def _form(row: Tensor) -> str:
    sides = ((row.source_dtype, row.source_shape), (row.target_dtype, row.target_shape))
    texts = ["absent" if shape is None else f"{dtype}{list(shape)}" for dtype, shape in sides]
    return " -> ".join(dict.fromkeys(texts))


def _roles(a: Mapping[str, Group], b: Mapping[str, Group]) -> Iterator[Change]:
    for role in sorted({**a, **b}):
        densities = (side[role].density if role in side else None for side in (a, b))
        yield Change(role, *densities)


def _count(a: Artifact, b: Artifact, rows: list[tuple[Tensor, Tensor]], progress: Progress) -> MaskCounts:
    from maskreg.analysis.contingency import count_both

    shared = [(x, y) for x, y in rows if x.numel and x.numel == y.numel and x.source_shape == y.source_shape]
    progress.start("diff", sum(x.numel for x, _ in shared) // 4)
    in_a = in_b = both = 0
    for x, y in shared:
        for start in range(0, x.numel, _SPAN):
            stop = min(start + _SPAN, x.numel)
            counts = count_both(a.mask_bits(x, start, stop), b.mask_bits(y, start, stop))
            in_a, in_b, both = in_a + counts[0], in_b + counts[1], both + counts[2]
            progress.advance((stop - start) // 4)
    return MaskCounts(in_a - both, in_b - both, both)

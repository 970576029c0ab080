"""Which tensors of one mask a selection names, which of several masks belong together, and whether masks compare."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.roles import ALL, Part, Selection
from maskreg.errors import PairMismatchError, UsageError
from maskreg.mask.packed import nnz_of
from maskreg.words import counted, listed

_ALIGNED = 64  # masks are read from coordinates on that are multiples of this


def parts_of(rows: Iterable[Tensor], selection: Selection) -> tuple[Part, ...]:
    """What of some rows of a tensor table is selected, in their order."""
    return selection.parts({row.name: row.source_shape or () for row in rows})


def selected_rows(artifact: Artifact, selection: Selection) -> tuple[Tensor, ...]:
    """The rows of an artifact that a selection names, in their order."""
    if not selection:
        return artifact.tensors
    # A tensor without a mask has no parts.
    parts = selection.parts({row.name: (row.source_shape or ()) if row.numel else () for row in artifact.tensors})
    return tuple(
        masked_row(artifact, part, artifact.by_name[part.tensor])
        for part in parts
        if part.tensor in artifact.by_name and artifact.by_name[part.tensor].name == part.tensor
    )


def row_of(part: Part, row: Tensor) -> Tensor:
    """The row that a part of a tensor would have in the tensor table, as far as its form goes."""
    if part.name == part.tensor:
        return row
    shape = (part.stop - part.start, *(row.source_shape or ())[1:])
    return replace(row, name=part.name, source_shape=shape, target_shape=shape, numel=math.prod(shape))


def masked_row(artifact: Artifact, part: Part, row: Tensor) -> Tensor:
    """The same, with the part's bits of the mask and their number.

    Its energy and leaves are the whole tensor's: read only the mask's figures from it.
    """
    if part.name == part.tensor:
        return row
    start, numel = first_coordinate(part, row), row_of(part, row).numel
    if start % _ALIGNED or (numel % _ALIGNED and start + numel != row.numel):
        raise UsageError(
            f"{part.name} cannot be read alone: it ends or begins in {row.name} at no multiple of {_ALIGNED} "
            "coordinates",
            hint=f"choose {row.name.removesuffix('.weight').rpartition('.')[2]}, which is whole",
        )
    artifact.require("mask")
    nnz = nnz_of(artifact.mask_bits(row, start, start + numel))
    return replace(row_of(part, row), bit_offset=row.bit_offset + start, nnz=nnz)


def first_coordinate(part: Part, row: Tensor) -> int:
    """Where a part begins in its tensor, in C order."""
    return part.start * math.prod((row.source_shape or ())[1:])


_HINT = "what they share can be compared"


class Group(NamedTuple):
    """A tensor of several masks. ``names``: in the order of the first mask; tied weights have several."""

    names: tuple[str, ...]
    rows: tuple[Tensor, ...]


@dataclass(frozen=True)
class Scope:
    """The tensors that all masks cover.

    Attributes:
        rows: for each tensor, its row in each artifact; for a part of a fused tensor, the row that it would have.
        origins: by name of such a part, the tensor in the first artifact and the part's first coordinate in it.
        notes: how the masks differ, one sentence each; empty when they do not.
        one_source: whether all masks are of the same source, as far as these tensors go.
    """

    rows: tuple[tuple[Tensor, ...], ...]
    notes: tuple[str, ...]
    one_source: bool
    origins: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def tensors(self) -> frozenset[str]:
        """Names of the tensors in the first artifact, which their parts are read from."""
        return frozenset(self.origin(rows[0].name)[0] for rows in self.rows)

    def origin(self, name: str) -> tuple[str, int]:
        """The tensor that a row's coordinates are of, and the first of them."""
        return self.origins.get(name, (name, 0))


def groups_of(artifacts: Sequence[Artifact]) -> tuple[Group, ...]:
    """Pair the tensors of several masks by their names, in the order of the first mask.

    Names that are one tensor in every mask form one group; a tensor that is tied in some masks only is in two groups.
    Names that a mask or the source lacks are left out.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in artifacts[0].tensors:
        for name in (row.name, *row.aliases) if row.source_shape is not None else ():
            if all(name in artifact.by_name for artifact in artifacts):
                groups.setdefault(tuple(artifact.by_name[name].name for artifact in artifacts), []).append(name)
    return tuple(
        Group(tuple(names), tuple(a.by_name[name] for a, name in zip(artifacts, key, strict=True)))
        for key, names in groups.items()
    )


def require_one_source(artifacts: Sequence[Artifact], kind: str, hint: str) -> None:
    """Refuse artifacts that were not made from one source checkpoint.

    ``artifacts``: at least one; each is compared with the first.
    """
    first = artifacts[0]
    for artifact in artifacts[1:]:
        if artifact.manifest.source.root != first.manifest.source.root:
            raise PairMismatchError(
                f"{first.digest.short} and {artifact.digest.short} are {kind} of different sources: "
                + _difference(first, artifact),
                hint=hint,
            )


def scope_of(artifacts: Sequence[Artifact], *, allow_different: bool = False, selection: Selection = ALL) -> Scope:
    """The tensors that several masks can be compared on, each once.

    ``allow_different``: restrict the comparison to shared tensors, with notes, instead of refusing.
    """
    notes: list[str] = []
    rules = {artifact.manifest.rule for artifact in artifacts}
    if len(rules) > 1:
        notes.append(f"the masks follow different rules: {', '.join(sorted(rules))}")
    groups = groups_of(artifacts)
    shared = tuple(_comparable(groups))
    left_out = _left_out(artifacts, shared)
    if left_out:
        notes.append(f"{counted(len(left_out), 'tensor', 'is')} not the same in all masks: {listed(left_out)}")
    differing = [rows[0].name for rows in shared if len({row.source_fingerprint for row in rows}) > 1]
    if differing:
        notes.append(f"the masks are of different sources: different values in {listed(differing)}")
    if notes and not allow_different:
        raise PairMismatchError(
            "; ".join(notes), tuple(left_out or differing), hint=_HINT, options={"allow_different": True}
        )
    if not shared:
        raise PairMismatchError(
            "the tensors that the masks share have no coordinates"
            if groups and not left_out
            else "the masks share no tensor"
        )
    if selection:
        return _selected(artifacts, Scope(shared, tuple(notes), not differing), selection)
    return Scope(shared, tuple(notes), not differing)


def _selected(artifacts: Sequence[Artifact], scope: Scope, selection: Selection) -> Scope:
    whole = {rows[0].name: rows for rows in scope.rows}
    parts = parts_of((rows[0] for rows in scope.rows), selection)
    chosen = tuple(
        tuple(masked_row(artifact, part, row) for artifact, row in zip(artifacts, whole[part.tensor], strict=True))
        for part in parts
    )
    origins = {
        part.name: (part.tensor, first_coordinate(part, whole[part.tensor][0]))
        for part in parts
        if part.name != part.tensor
    }
    note = f"the comparison is of {selection} alone"
    return Scope(chosen, (*scope.notes, note), scope.one_source, origins)


def _comparable(groups: Sequence[Group]) -> Iterator[tuple[Tensor, ...]]:
    taken: set[tuple[int, str]] = set()
    for _, rows in groups:
        keys = set(enumerate(row.name for row in rows))
        same_form = all(row.numel for row in rows) and len({row.source_shape for row in rows}) == 1
        if same_form and not keys & taken:
            taken |= keys
            yield rows


def _left_out(artifacts: Sequence[Artifact], shared: Sequence[tuple[Tensor, ...]]) -> list[str]:
    names: dict[str, None] = {}
    for index, artifact in enumerate(artifacts):
        kept = {rows[index].name for rows in shared}
        names |= dict.fromkeys(row.name for row in artifact.tensors if row.numel and row.name not in kept)
    return list(names)


def _difference(left: Artifact, right: Artifact) -> str:
    sides = [{n: t for n, t in m.by_name.items() if t.source_shape is not None} for m in (left, right)]
    alone = tuple(sorted(sides[0].keys() ^ sides[1].keys()))
    if alone:
        return f"only one has {listed(alone)}"
    for name, row in sides[0].items():
        match = sides[1][name]
        if (row.source_dtype, row.source_shape) != (match.source_dtype, match.source_shape):
            forms = [f"{t.source_dtype} {list(t.source_shape or ())}" for t in (row, match)]
            return f"{name} is {forms[0]} in one and {forms[1]} in the other"
    differing = tuple(n for n, t in sides[0].items() if t.source_fingerprint != sides[1][n].source_fingerprint)
    return f"{counted(len(differing), 'tensor', 'has')} other values, {listed(differing)}"

"""Which tensors several masks can be compared on, and what keeps them from being compared at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskreg.artifact.manifest import Tensor
from maskreg.artifact.reader import Artifact
from maskreg.errors import PairMismatchError

NAMED_AT_MOST = 5
"""Tensors that a message lists by name."""

_HINT = "add --allow-different to compare what they share"


@dataclass(frozen=True)
class Scope:
    """The tensors that all masks cover.

    Attributes:
        rows: for each tensor, its row in each artifact.
        notes: how the masks differ, one sentence each; empty when they do not.
        one_source: whether all masks are of the same source, as far as these tensors go.
    """

    rows: tuple[tuple[Tensor, ...], ...]
    notes: tuple[str, ...]
    one_source: bool

    @property
    def numel(self) -> int:
        """Coordinates of all tensors."""
        return sum(row[0].numel for row in self.rows)


def scope_of(artifacts: Sequence[Artifact], *, allow_different: bool = False) -> Scope:
    """Pair the tensors of several masks by name; an alias of a tied weight will do.

    Args:
        artifacts: the masks.
        allow_different: restrict the comparison to what they share, and say so, instead of refusing.

    Raises:
        PairMismatchError: their rules, tensors (names or shapes) or sources differ; or they share no tensor.
    """
    notes: list[str] = []
    rules = {artifact.manifest.rule for artifact in artifacts}
    if len(rules) > 1:
        notes.append(f"the masks follow different rules: {', '.join(sorted(rules))}")
    shared, left_out = _paired(artifacts)
    if left_out:
        notes.append(f"{len(left_out)} tensors are not alike in all masks: {_listed(left_out)}")
    others = [rows[0].name for rows in shared if len({row.source_fingerprint for row in rows}) > 1]
    if others:
        notes.append(f"the masks are of different sources: {_listed(others)} differ")
    if notes and not allow_different:
        raise PairMismatchError("; ".join(notes), tuple(left_out or others), hint=_HINT)
    if not shared:
        raise PairMismatchError("the masks have no tensor in common")
    return Scope(tuple(shared), tuple(notes), not others)


def _paired(artifacts: Sequence[Artifact]) -> tuple[list[tuple[Tensor, ...]], list[str]]:
    shared: list[tuple[Tensor, ...]] = []
    left_out: dict[str, None] = {}
    taken: list[set[str]] = [set() for _ in artifacts]
    for row in artifacts[0].tensors:
        if not row.numel:
            continue
        found = [_same(artifact, row) for artifact in artifacts]
        rows = tuple(other for other in found if other is not None)
        twice = any(other.name in names for other, names in zip(found, taken, strict=True) if other is not None)
        if len(rows) < len(found) or twice or len({other.source_shape for other in rows}) > 1:
            left_out[row.name] = None
            continue
        shared.append(rows)
        for other, names in zip(rows, taken, strict=True):
            names.add(other.name)
    for artifact, names in zip(artifacts, taken, strict=True):
        left_out |= dict.fromkeys(row.name for row in artifact.tensors if row.numel and row.name not in names)
    return shared, list(left_out)


def _same(artifact: Artifact, row: Tensor) -> Tensor | None:
    found = next((artifact.by_name[name] for name in (row.name, *row.aliases) if name in artifact.by_name), None)
    return found if found is not None and found.numel else None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return ", ".join(names[:NAMED_AT_MOST]) + more

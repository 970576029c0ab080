"""From the counts of tensors to the figures of tensors, roles, layers and the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from maskreg.analysis.chance import Floats
from maskreg.analysis.comparison import Comparison, Consensus, PairOverlap, Stripes, independent, matrix_of, stripes_of
from maskreg.analysis.contingency import Cells
from maskreg.analysis.evidence import (
    NO_SOURCE,
    ROUNDING,
    ROUNDING_A,
    ROUNDING_B,
    OverlapFigures,
    OverlapSums,
    figures_of,
    sums_from_classes,
    sums_from_counts,
)
from maskreg.analysis.grid import Grid
from maskreg.analysis.overlap import OverlapCounts
from maskreg.analysis.verdict import Asked, Start, start_of_pair
from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.roles import GROUPS, module_of, shared_of, stream_of
from maskreg.errors import CorruptError
from maskreg.flow.overlap.counting import SpanCounts
from maskreg.flow.overlap.relations import Ancestry, Relative, doubt, likeness, relation
from maskreg.mask.rounding import fit_flips, hidden_flips, off_grid
from maskreg.parallel import ordered


class OverlapTotals:
    """Adds up tensors to roles, layers and the whole, for every pair of masks."""

    def __init__(
        self,
        artifacts: Sequence[Artifact],
        names: Sequence[str],
        *,
        by_class: bool,
        stripes: bool = False,
        by: Sequence[str] = (),
        ancestries: Sequence[Ancestry] = (),
        jobs: int = 1,
    ) -> None:
        """Begin with nothing."""
        self._artifacts = artifacts
        self._names = names
        known = ancestries or [Ancestry.of_parents(artifact) for artifact in artifacts]
        self._relatives = [Relative(*mask) for mask in zip(names, artifacts, known, strict=True)]
        self._by_class = by_class
        self._by = tuple(by)
        self._jobs = jobs
        self._stream = stream_of((t.name, t.layer, t.role, t.source_shape or ()) for t in artifacts[0].tensors)
        self._pairs = {pair: _Sums(by) for pair in combinations(range(len(artifacts)), 2)}
        self._known: tuple[str, dict[int, Floats | str]] = "", {}
        self._no_flips = [hidden_flips(artifact.manifest.rule) for artifact in artifacts]
        self._observed = np.zeros(len(artifacts) + 1, np.int64)
        self._independent = np.zeros(len(artifacts) + 1)
        self._stripes: list[dict[str, Stripes]] = [{} for _ in artifacts] if stripes else []

    def add(self, counts: SpanCounts, grids: Sequence[Grid] = ()) -> None:
        """Add a tensor, or a tile of its pairs."""
        rows, pairs = counts.span.rows, counts.span.tile.pairs
        # Classes are the source's, whatever the masks: any pair tells how many coordinates each class has.
        flips_of = {number: self._flips(number, rows, counts.pairs[0]) for number in counts.span.tile.masks}
        row = rows[0]
        shared = shared_of(row.name, row.layer, row.role, row.source_shape or (), self._stream)

        def sums_of(pair: tuple[tuple[int, int], Cells, Grid | None]) -> OverlapSums:
            (a, b), cells, grid = pair
            neither, only_a, only_b, both = (int(count) for count in cells.sum(0))
            _check(rows[a], only_a + both)
            _check(rows[b], only_b + both)
            if self._by_class:
                return sums_from_classes(cells, flips_of[a], flips_of[b], grid, has_lines=True, shared=shared)
            table = OverlapCounts(neither + only_a + only_b + both, only_a + both, only_b + both, both)
            return sums_from_counts(table, grid, has_lines=True, shared=shared)

        by_line: Sequence[Grid | None] = grids or [None] * len(pairs)
        tasks = zip(pairs, counts.pairs, by_line, strict=True)
        # One pair is not worth a thread.
        jobs = min(self._jobs, len(pairs))
        results = map(sums_of, tasks) if jobs == 1 else ordered(sums_of, tasks, jobs=jobs, size=lambda _: row.numel)
        for pair, sums in zip(pairs, results, strict=True):
            self._pairs[pair].add(row, sums)
        if counts.agreeing.size:
            self._observed += counts.agreeing
            self._independent += independent(rows[0].numel, [row.nnz for row in rows])
        if counts.stripes:
            for stripes, (by_row, by_column) in zip(self._stripes, counts.stripes, strict=True):
                stripes[rows[0].name] = stripes_of(by_row, by_column)

    def comparison(self, notes: Sequence[str], smallest: float, starts: Sequence[Start]) -> Comparison:
        """The figures of every pair, and of all masks together."""
        pairs = tuple(
            self._overlap(pair, sums, notes, Asked(smallest, start_of_pair(*(starts[mask] for mask in pair))))
            for pair, sums in self._pairs.items()
        )
        if len(self._artifacts) == 2:
            return Comparison(pairs, None, tuple(self._stripes))
        consensus = Consensus(tuple(self._observed.tolist()), tuple(self._independent.tolist()))
        return Comparison(pairs, consensus, tuple(self._stripes), matrix_of(pairs, self._names))

    def _overlap(self, pair: tuple[int, int], sums: _Sums, notes: Sequence[str], asked: Asked) -> PairOverlap:
        left, right = (self._artifacts[mask] for mask in pair)
        names = self._names[pair[0]], self._names[pair[1]]
        whole = figures_of(sums.whole)
        relatives = self._relatives[pair[0]], self._relatives[pair[1]]
        known = {str(mask.artifact.digest): mask.name for mask in self._relatives}
        same = tuple(relation(relatives, whole.counts))
        relations = same or tuple(likeness(relatives, whole.counts, known))
        doubts = () if same else tuple(doubt(relatives))
        return PairOverlap(
            names,
            (left.digest, right.digest),
            (left.manifest.rule, right.manifest.rule),
            whole,
            {role: figures_of(total) for role, total in sums.groups["role"].items()},
            {layer: figures_of(total) for layer, total in sums.groups["layer"].items()},
            {module: figures_of(total) for module, total in sums.groups["module"].items()},
            sums.tensors,
            (*notes, *relations, *doubts, *(_missing(whole) if self._by_class else ())),
            replace(asked, relation=same[0] if same else ""),
            relations,
            self._by,
        )

    def _flips(self, number: int, rows: Sequence[Tensor], cells: Cells) -> Floats | str:
        """Chances of a mask to be flipped, which all tiles of a tensor share."""
        if self._known[0] != rows[0].name:
            self._known = rows[0].name, {}
        known = self._known[1]
        if number not in known:
            known[number] = self._fitted(number, rows[number], cells)
        return known[number]

    def _fitted(self, number: int, row: Tensor, cells: Cells) -> Floats | str:
        if not self._by_class:
            return NO_SOURCE
        if self._no_flips[number]:
            return self._no_flips[number]
        if row.source_dtype != "BF16":
            return f"{row.name}: {off_grid(row.source_dtype)}"
        try:
            return fit_flips(cells.sum(1), row.nnz)
        except ValueError as error:
            return f"{row.name}: {error}"


class _Sums:
    def __init__(self, by: Sequence[str]) -> None:
        self.whole = OverlapSums()
        self.groups: dict[str, dict[str, OverlapSums]] = {kind: {} for kind in GROUPS}
        self.tensors: dict[str, OverlapFigures] = {}
        self._by = by

    def add(self, row: Tensor, tensor: OverlapSums) -> None:
        self.whole += tensor
        labels = {"role": row.role, "layer": row.layer, "module": module_of(row.name, row.layer)}
        for kind, label in labels.items():
            # A tensor outside every layer is in no group of them.
            if kind in self._by and label:
                groups = self.groups[kind]
                groups[label] = groups.get(label, OverlapSums()) + tensor
        if "tensor" in self._by:
            self.tensors[row.name] = figures_of(tensor)


def _check(row: Tensor, counted: int) -> None:
    if counted != row.nnz:
        raise CorruptError(f"tensor {row.name}", f"its mask has {counted} coordinates, but {row.nnz} are recorded")


def _missing(whole: OverlapFigures) -> list[str]:
    nulls = (whole.nulls[name].reason for name in (ROUNDING, ROUNDING_A, ROUNDING_B))
    reasons = dict.fromkeys(reason for reason in nulls if reason)
    return [f"the rounding null is undefined: {reason}" for reason in reasons]

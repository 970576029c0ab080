"""From the counts of tensors to the figures of tensors, roles, layers and the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from maskreg.analysis.chance import Floats, fit_flips
from maskreg.analysis.comparison import Comparison, PairOverlap
from maskreg.analysis.consensus import Consensus, independent
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
from maskreg.analysis.stripes import Stripes, stripes_of
from maskreg.analysis.verdict import Asked, Start
from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.checkpoint.roles import module_of
from maskreg.errors import CorruptError
from maskreg.flow.overlap.counting import SpanCounts
from maskreg.mask.rounding import hidden_flips, off_grid


class OverlapTotals:
    """Adds up tensors to roles, layers and the whole, for every pair of masks."""

    def __init__(
        self,
        artifacts: Sequence[Artifact],
        names: Sequence[str],
        *,
        by_class: bool,
        stripes: bool = False,
        lines: bool = False,
    ) -> None:
        """Begin with nothing.

        Args:
            artifacts: the masks.
            names: of the masks.
            by_class: counts are by class of the source's codes.
            stripes: counts have rows and columns of every mask.
            lines: every pair is counted by row and by column.
        """
        self._artifacts = artifacts
        self._names = names
        self._by_class = by_class
        self._lines = lines
        self._pairs = [_Sums() for _ in combinations(artifacts, 2)]
        self._no_flips = [hidden_flips(artifact.manifest.rule) for artifact in artifacts]
        self._observed = np.zeros(len(artifacts) + 1, np.int64)
        self._independent = np.zeros(len(artifacts) + 1)
        self._stripes: list[dict[str, Stripes]] = [{} for _ in artifacts] if stripes else []

    def add(self, counts: SpanCounts, grids: Sequence[Grid] = ()) -> None:
        """Add a tensor.

        Args:
            counts: of all its spans together.
            grids: for every pair the counts by row and column; none where the tensor has not several of both.

        Raises:
            CorruptError: a mask does not hold as many coordinates as its artifact says.
        """
        rows = counts.span.rows
        # Classes are the source's, whatever the masks: any pair tells how many coordinates each class has.
        flips_of = [self._flips(number, row, counts.pairs[0]) for number, row in enumerate(rows)]
        pairs = combinations(range(len(rows)), 2)
        by_line: Sequence[Grid | None] = grids or [None] * len(self._pairs)
        for (a, b), cells, grid, sums in zip(pairs, counts.pairs, by_line, self._pairs, strict=True):
            _, only_a, only_b, both = (int(count) for count in cells.sum(0))
            _check(rows[a], only_a + both)
            _check(rows[b], only_b + both)
            if self._by_class:
                tensor = sums_from_classes(cells, flips_of[a], flips_of[b], grid, has_lines=self._lines)
            else:
                table = OverlapCounts(rows[0].numel, only_a + both, only_b + both, both)
                tensor = sums_from_counts(table, grid, has_lines=self._lines)
            sums.add(rows[0], tensor)
        if counts.agreeing.size:
            self._observed += counts.agreeing
            self._independent += independent(rows[0].numel, [row.nnz for row in rows])
        if counts.stripes:
            for stripes, (by_row, by_column) in zip(self._stripes, counts.stripes, strict=True):
                stripes[rows[0].name] = stripes_of(by_row, by_column)

    def comparison(self, notes: Sequence[str], smallest: float, start: Start) -> Comparison:
        """The figures of every pair, and of all masks together.

        Args:
            notes: what holds for every pair, one sentence each.
            smallest: the smallest headroom that matters to a verdict.
            start: whether the source is what training started from.
        """
        pairs = zip(combinations(self._artifacts, 2), combinations(self._names, 2), self._pairs, strict=True)
        consensus = Consensus(tuple(self._observed.tolist()), tuple(self._independent.tolist()))
        return Comparison(
            tuple(self._overlap(masks, names, sums, notes, Asked(smallest, start)) for masks, names, sums in pairs),
            consensus if len(self._artifacts) > 2 else None,
            tuple(self._stripes),
        )

    def _overlap(
        self, masks: tuple[Artifact, Artifact], names: tuple[str, str], sums: _Sums, notes: Sequence[str], asked: Asked
    ) -> PairOverlap:
        left, right = masks
        whole = figures_of(sums.whole)
        relations = tuple(_relation(masks, names, whole.counts))
        return PairOverlap(
            names,
            (left.digest, right.digest),
            (left.manifest.rule, right.manifest.rule),
            whole,
            {role: figures_of(total) for role, total in sums.roles.items()},
            {layer: figures_of(total) for layer, total in sums.layers.items()},
            {module: figures_of(total) for module, total in sums.modules.items()},
            sums.tensors,
            (*notes, *relations, *(_missing(whole) if self._by_class else ())),
            replace(asked, relation=relations[0] if relations else ""),
        )

    def _flips(self, number: int, row: Tensor, cells: Cells) -> Floats | str:
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
    def __init__(self) -> None:
        self.whole = OverlapSums()
        self.roles: dict[str, OverlapSums] = {}
        self.layers: dict[str, OverlapSums] = {}
        self.modules: dict[str, OverlapSums] = {}
        self.tensors: dict[str, OverlapFigures] = {}

    def add(self, row: Tensor, tensor: OverlapSums) -> None:
        self.whole += tensor
        self.roles[row.role] = self.roles.get(row.role, OverlapSums()) + tensor
        if row.layer:
            self.layers[row.layer] = self.layers.get(row.layer, OverlapSums()) + tensor
        module = module_of(row.name, row.layer)
        self.modules[module] = self.modules.get(module, OverlapSums()) + tensor
        self.tensors[row.name] = figures_of(tensor)


def _relation(masks: tuple[Artifact, Artifact], names: tuple[str, str], table: OverlapCounts) -> Iterator[str]:
    """Why two masks are alike whatever was trained: one artifact, the same bits, or one derived from the other."""
    if masks[0].digest == masks[1].digest:
        yield f"{names[0]} and {names[1]} are the same artifact"
        return
    if table.a == table.b == table.both:
        yield f"{names[0]} and {names[1]} hold the same coordinates"
    for child, parent in ((0, 1), (1, 0)):
        manifest = masks[child].manifest
        if masks[parent].digest in manifest.parents:
            how = f" ({manifest.recipe['kind']})" if manifest.recipe else ""
            yield f"{names[child]} was made from {names[parent]}{how}"


def _check(row: Tensor, counted: int) -> None:
    if counted != row.nnz:
        raise CorruptError(f"tensor {row.name}", f"its mask has {counted} coordinates, but {row.nnz} are recorded")


def _missing(whole: OverlapFigures) -> list[str]:
    nulls = (whole.nulls[name].reason for name in (ROUNDING, ROUNDING_A, ROUNDING_B))
    reasons = dict.fromkeys(reason for reason in nulls if reason)
    return [f"the rounding null is undefined: {reason}" for reason in reasons]

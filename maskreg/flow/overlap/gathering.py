"""From the counts of every tensor to the figures of tensors, roles, layers and the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from maskreg.analysis.chance import Floats, fit_flips
from maskreg.analysis.comparison import PairOverlap
from maskreg.analysis.contingency import Cells
from maskreg.analysis.evidence import OverlapFigures, OverlapSums, figures_of, sums_from_classes, sums_from_counts
from maskreg.analysis.overlap import OverlapCounts
from maskreg.artifact.manifest import Tensor
from maskreg.artifact.reader import Artifact
from maskreg.errors import CorruptError
from maskreg.mask.rounding import off_grid
from maskreg.rules import parse_rule


class Gathered:
    """Adds tensors up, for every pair of masks."""

    def __init__(self, artifacts: Sequence[Artifact], names: Sequence[str], *, by_class: bool) -> None:
        """Begin with nothing.

        Args:
            artifacts: the masks.
            names: what they are called.
            by_class: the counts are by class of the source's codes.
        """
        self._artifacts = artifacts
        self._names = names
        self._by_class = by_class
        self._pairs = [_Sums() for _ in combinations(artifacts, 2)]
        self._unfit = [_why_no_flips(artifact) for artifact in artifacts]

    def add(self, rows: tuple[Tensor, ...], pairs: tuple[Cells, ...]) -> None:
        """Add a tensor.

        Args:
            rows: its row in each artifact.
            pairs: int64, for every pair of masks 2x2 tables of the whole tensor.

        Raises:
            CorruptError: a mask does not hold as many coordinates as its artifact says.
        """
        # The classes are the source's, whatever the masks: any pair tells how many coordinates each has.
        flips_of = [self._flips(number, row, pairs[0]) for number, row in enumerate(rows)] if self._by_class else []
        for (a, b), cells, sums in zip(combinations(range(len(rows)), 2), pairs, self._pairs, strict=True):
            _, only_a, only_b, both = (int(count) for count in cells.sum(0))
            _check(rows[a], only_a + both)
            _check(rows[b], only_b + both)
            if self._by_class:
                evidence = sums_from_classes(cells, flips_of[a], flips_of[b])
            else:
                evidence = sums_from_counts(OverlapCounts(rows[0].numel, only_a + both, only_b + both, both))
            sums.add(rows[0], evidence)

    def comparisons(self, notes: Sequence[str]) -> tuple[PairOverlap, ...]:
        """The figures of every pair."""
        pairs = zip(combinations(self._artifacts, 2), combinations(self._names, 2), self._pairs, strict=True)
        return tuple(self._comparison(masks, names, sums, notes) for masks, names, sums in pairs)

    def _comparison(
        self, masks: tuple[Artifact, Artifact], names: tuple[str, str], sums: _Sums, notes: Sequence[str]
    ) -> PairOverlap:
        one, other = masks
        whole = figures_of(sums.whole)
        return PairOverlap(
            names,
            (one.digest, other.digest),
            (one.manifest.rule, other.manifest.rule),
            whole,
            {name: figures_of(evidence) for name, evidence in sums.roles.items()},
            {name: figures_of(evidence) for name, evidence in sums.layers.items()},
            sums.tensors,
            (*notes, *_relation(masks, names, whole.counts), *(_missing(whole) if self._by_class else ())),
        )

    def _flips(self, number: int, row: Tensor, cells: Cells) -> Floats | str:
        if self._unfit[number]:
            return self._unfit[number]
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
        self.tensors: dict[str, OverlapFigures] = {}

    def add(self, row: Tensor, evidence: OverlapSums) -> None:
        self.whole += evidence
        self.roles[row.role] = self.roles.get(row.role, OverlapSums()) + evidence
        if row.layer:
            self.layers[row.layer] = self.layers.get(row.layer, OverlapSums()) + evidence
        self.tensors[row.name] = figures_of(evidence)


def _why_no_flips(artifact: Artifact) -> str:
    rule = artifact.manifest.rule
    return "" if parse_rule(rule).keeps_target else f"rule {rule} hides flips, the more the smaller the weight"


def _relation(masks: tuple[Artifact, Artifact], names: tuple[str, str], table: OverlapCounts) -> Iterator[str]:
    """What makes two masks alike before any weight moves: they are one, or one was made from the other."""
    one, other = masks
    if one.digest == other.digest:
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
        raise CorruptError(f"tensor {row.name}", f"its mask has {counted} coordinates, and {row.nnz} are recorded")


def _missing(whole: OverlapFigures) -> list[str]:
    reasons = dict.fromkeys(found.reason for found in whole.nulls.values() if found.reason)
    return [f"the rounding null is undefined where it needs this: {reason}" for reason in reasons]

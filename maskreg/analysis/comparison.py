"""The result of comparing masks: figures of every pair, consensus, stripes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import MOST_CROSSED
from maskreg.analysis.evidence import MATCHED, NULLS, PER_TENSOR, STRIPED, OverlapFigures
from maskreg.analysis.overlap import ratio
from maskreg.analysis.pairwise import PairAnswer, PairMatrix, holm, order_of
from maskreg.analysis.verdict import LEVEL, Asked, Outcome, Verdict, deciding, verdict
from maskreg.checkpoint.roles import GROUPS
from maskreg.result import Brief, plain


@dataclass(frozen=True)
class Consensus:
    """Coordinates by the number of masks that hold them.

    Attributes:
        observed: in exactly 0, 1, ... n of n masks.
        expected: the same for masks that are independent within every tensor.
    """

    observed: tuple[int, ...]
    expected: tuple[float, ...]

    @classmethod
    def of(cls, observed: npt.NDArray[np.int64], expected: npt.NDArray[np.float64], *, which: bool = False) -> Self:
        """Of counts by how many masks hold a coordinate; with ``which``, by which of them, bit m of an index mask m."""
        if which:
            masks = np.bitwise_count(np.arange(observed.size))
            observed = np.bincount(masks, observed).astype(np.int64)
            expected = np.bincount(masks, expected).astype(np.float64)
        return cls(tuple(observed.tolist()), tuple(expected.tolist()))

    def to_json(self) -> list[dict[str, Any]]:
        """A row for each k."""
        pairs = enumerate(zip(self.observed, self.expected, strict=True))
        return [{"masks": k, "coordinates": n, "expected": expected} for k, (n, expected) in pairs]


@dataclass(frozen=True)
class Intersection:
    """Coordinates that some masks hold, and no others.

    Attributes:
        masks: their numbers; at least one.
        expected: coordinates, for masks that are independent within every tensor.
    """

    masks: tuple[int, ...]
    coordinates: int
    expected: float


ONLY_OF_SIX = (
    f"intersections are counted of {MOST_CROSSED} masks at most, because {MOST_CROSSED + 1} already have "
    f"{2 ** (MOST_CROSSED + 1) - 1}"
)
"""Why more masks have no intersections."""


def intersections_of(observed: npt.NDArray[np.int64], expected: npt.NDArray[np.float64]) -> tuple[Intersection, ...]:
    """Every combination of masks, the largest first, of counts by which masks hold a coordinate, ``[2 ** masks]``."""
    rows = enumerate(zip(observed.tolist(), expected.tolist(), strict=True))
    found = [
        Intersection(tuple(mask for mask in range(number.bit_length()) if number >> mask & 1), *counts)
        for number, counts in rows
        if number
    ]
    return tuple(sorted(found, key=lambda each: (-each.coordinates, each.masks)))


def independent(numel: int, nnz: Sequence[int], *, which: bool = False) -> npt.NDArray[np.float64]:
    """Expected coordinates of a tensor in exactly k of several independent masks, float64 ``[len(nnz) + 1]``.

    With ``which``, in exactly these masks, ``[2 ** len(nnz)]``: bit m of an index is mask m.

    The number of masks that hold a coordinate is Poisson binomial. Its distribution is the product of the generating
    functions (1 - p_m) + p_m x, built by one convolution per mask. Example: masks of 4 and 2 of 8 coordinates, [1/2,
    1/2] * [3/4, 1/4] = [3/8, 4/8, 1/8], so 3, 4 and 1 coordinates.
    """
    chances = np.array([1.0])
    for count in nnz:
        p = count / numel if numel else 0.0
        chances = np.kron([1 - p, p], chances) if which else np.convolve(chances, [1 - p, p])
    return chances * numel


MOST_BLOCKS = 64
"""Most blocks of rows, and of columns, that a picture has."""


@dataclass(frozen=True, eq=False)
class ConsensusPicture:
    """The consensus ratios of one matrix, averaged over blocks of rows and columns, to be looked at.

    Source: "The Path Not Taken", whose consensus ratio is ``C_ij = (1/R) sum_r M_ij^(r)``, with the ratios of rows
    ``rho_i = mean_j C_ij`` and of columns ``kappa_j = mean_i C_ij``. ``rows`` and ``columns`` are the dispersions of
    these: their variance over the variance of independent coordinates of the masks' densities; None where every mask
    is empty or full. Blocks have ``runs`` rows and columns; ``ratios`` are the means of C, float64 ``[at most 64, at
    most 64]``.
    """

    name: str
    shape: tuple[int, int]
    consensus: Consensus
    rows: float | None
    columns: float | None
    runs: tuple[int, int]
    ratios: npt.NDArray[np.float64]

    @classmethod
    def of(cls, name: str, shape: tuple[int, int], counts: npt.NDArray[np.uint8], nnz: Sequence[int]) -> Self:
        """Of the number of masks that hold each coordinate, uint8 ``[numel]``, and the coordinates of each mask."""
        observed = np.bincount(counts, minlength=len(nnz) + 1)
        expected = independent(counts.size, nnz)
        matrix = counts.reshape(shape)
        # Of R C_ij, whose variance is the sum of the masks' p (1 - p).
        variance = sum(n / counts.size * (1 - n / counts.size) for n in nnz)
        by_row, by_column = (ratio(float(matrix.mean(axis).var()), variance / shape[axis]) for axis in (1, 0))
        runs = -(-shape[0] // MOST_BLOCKS), -(-shape[1] // MOST_BLOCKS)
        rows, columns = np.arange(0, shape[0], runs[0]), np.arange(0, shape[1], runs[1])
        sums = np.add.reduceat(np.add.reduceat(matrix, rows, 0, np.int64), columns, 1)
        sizes = np.outer(np.diff(rows, append=shape[0]), np.diff(columns, append=shape[1]))
        consensus = Consensus.of(observed, expected)
        return cls(name, shape, consensus, by_row, by_column, runs, sums / sizes / len(nnz))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "tensor": self.name,
            "shape": list(self.shape),
            "consensus": self.consensus.to_json(),
            "row_dispersion": self.rows,
            "column_dispersion": self.columns,
            "block": list(self.runs),
            "ratios": [[round(ratio, 6) for ratio in row] for row in self.ratios.tolist()],
        }


# Stripes of a mask: rows and columns that move together, against independent coordinates.
#
# Example: a 4 x 6 matrix with one full row and nothing else has density p = 1/4. Its rows have densities 0, 1, 0, 0
# with variance 3/16; independent coordinates would give p (1 - p) / 6 = 1/32: a dispersion of 6.


@dataclass(frozen=True)
class Lines:
    """The rows, or the columns, of one matrix.

    Attributes:
        count: how many.
        full, empty: shares of them with all, or none, of their coordinates in the mask; None without lines.
        variance: of their densities; None without coordinates.
        binomial: p (1 - p) / length, the variance of independent coordinates.
        dispersion: variance / binomial; None for an empty or full mask.
    """

    count: int
    full: float | None
    empty: float | None
    variance: float | None
    binomial: float | None
    dispersion: float | None


@dataclass(frozen=True)
class Stripes:
    """Both directions of one matrix of one mask."""

    rows: Lines
    columns: Lines


def stripes_of(rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> Stripes:
    """The stripes of a matrix, from the coordinates of each row, int64 ``[m]``, and of each column in the mask."""
    return Stripes(_lines(rows, columns.size), _lines(columns, rows.size))


def _lines(counts: npt.NDArray[np.int64], length: int) -> Lines:
    n = counts.size
    if not n or not length:
        return Lines(n, None, None, None, None, None)
    densities = counts / length
    variance, p = float(densities.var()), float(counts.sum()) / (n * length)
    binomial = p * (1 - p) / length
    full, empty = int((counts == length).sum()), int((counts == 0).sum())
    return Lines(n, full / n, empty / n, variance, binomial, ratio(variance, binomial))


_ONE_OF_MANY = "of so many answers this one could be wrong by accident"


@dataclass(frozen=True)
class PairOverlap:
    """The overlap of two masks, A and B.

    Attributes:
        whole: figures over everything that was compared.
        roles, layers, modules, tensors: the same figures by group, of those that were kept.
        asked: what the verdict is asked under.
        relations: how one follows from the other, or both from a third; they are among the notes.
        kept: some of :data:`~maskreg.checkpoint.roles.GROUPS`.
    """

    names: tuple[str, str]
    digests: tuple[str, str]
    rules: tuple[str, str]
    whole: OverlapFigures
    roles: Mapping[str, OverlapFigures]
    layers: Mapping[str, OverlapFigures]
    modules: Mapping[str, OverlapFigures]
    tensors: Mapping[str, OverlapFigures]
    notes: tuple[str, ...]
    asked: Asked = field(default_factory=Asked)
    relations: tuple[str, ...] = ()
    kept: tuple[str, ...] = tuple(GROUPS)

    def __repr__(self) -> str:
        return f"<PairOverlap: {self.verdict.sentence}>"

    def by(self, kind: str) -> Mapping[str, OverlapFigures]:
        """The figures of every group of a kind: one of :data:`~maskreg.checkpoint.roles.GROUPS`."""
        groups: Mapping[str, OverlapFigures] = getattr(self, f"{kind}s")
        return groups

    @property
    def verdict(self) -> Verdict:
        """Whether the overlap is more, or less, than chance."""
        return verdict(self.whole, self.names, self.asked)

    @property
    def scope(self) -> dict[str, int]:
        """How much was compared: tensors and coordinates."""
        return {"tensors": self.whole.tensors, "coordinates": self.whole.counts.numel}

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null, and groups that were not kept are absent."""
        groups = {f"{kind}s": self.by(kind) for kind in self.kept}
        return {
            "names": list(self.names),
            "digests": list(self.digests),
            "rules": list(self.rules),
            "scope": self.scope,
            "whole": self.whole.to_json(),
            **{kind: {name: figures.to_json() for name, figures in group.items()} for kind, group in groups.items()},
            "verdict": plain(asdict(self.verdict)),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Comparison(Brief):
    """Two or more masks compared, and the pairs of more beside each other: consensus and matrix.

    ``stripes`` are for each mask its matrices' stripes by name, where asked for; ``intersections`` are of three to six
    masks, the largest first.
    """

    pairs: tuple[PairOverlap, ...]
    consensus: Consensus | None
    stripes: tuple[Mapping[str, Stripes], ...]
    matrix: PairMatrix | None = None
    intersections: tuple[Intersection, ...] = ()

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The answer about every pair; of several, corrected for their number."""
        if self.matrix is None:
            return tuple(pair.verdict.outcome for pair in self.pairs)
        return tuple(pair.outcome for pair in self.matrix.pairs)

    def to_json(self) -> dict[str, Any]:
        """Plain values; undefined figures are null."""
        return {
            "matrix": None if self.matrix is None else self.matrix.to_json(),
            "pairs": [pair.to_json() for pair in self.pairs],
            "consensus": None if self.consensus is None else self.consensus.to_json(),
            "intersections": [asdict(each) for each in self.intersections],
            "stripes": [{name: asdict(stripes) for name, stripes in mask.items()} for mask in self.stripes],
        }


def matrix_of(pairs: Sequence[PairOverlap], names: Sequence[str]) -> PairMatrix:
    """The matrix of some masks, from every pair in their order."""
    verdicts = [pair.verdict for pair in pairs]
    null = _strictest(pairs)
    tested = sum(bool(alone.null) for alone in verdicts)
    corrected = holm([alone.p for alone in verdicts], tested)
    answers = []
    for masks, pair, alone, p in zip(combinations(range(len(names)), 2), pairs, verdicts, corrected, strict=True):
        excess = pair.whole.nulls[null]
        stands = not alone.null or (p is not None and p <= LEVEL)
        answers.append(
            PairAnswer(
                masks,
                pair.asked.start,
                excess.headroom,
                excess.headroom_interval,
                alone.null,
                alone.headroom,
                alone.outcome if stands else Outcome.OPEN,
                alone.outcome,
                alone.p,
                p,
                "; ".join(pair.relations),
                alone.reason or ("" if stands else _ONE_OF_MANY),
            )
        )
    matrix = PairMatrix(tuple(names), null, pairs[0].asked.smallest, tested, tuple(answers))
    known = all(pair.whole.nulls[MATCHED].expected is not None for pair in pairs)
    return replace(matrix, order=order_of(matrix.headrooms), with_source=known)


def _strictest(pairs: Sequence[PairOverlap]) -> str:
    shared = set(NULLS).intersection(*(deciding(pair.whole) for pair in pairs))
    return next(null for null in (STRIPED, MATCHED, PER_TENSOR) if null in shared)

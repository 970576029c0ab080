"""Consensus of several masks: coordinates in exactly k of them, against independent masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Consensus:
    """Coordinates by the number of masks that hold them.

    Attributes:
        observed: in exactly 0, 1, ... n of n masks.
        expected: the same for masks that are independent within every tensor.
    """

    observed: tuple[int, ...]
    expected: tuple[float, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """A row for each k."""
        pairs = enumerate(zip(self.observed, self.expected, strict=True))
        return [{"masks": k, "coordinates": n, "expected": expected} for k, (n, expected) in pairs]


def independent(numel: int, nnz: Sequence[int]) -> npt.NDArray[np.float64]:
    """Expected coordinates of a tensor in exactly k of several independent masks.

    The number of masks that hold a coordinate is Poisson binomial. Its distribution is the product of the generating
    functions (1 - p_m) + p_m x, built by one convolution per mask. Example: masks of 4 and 2 of 8 coordinates,
    [1/2, 1/2] * [3/4, 1/4] = [3/8, 4/8, 1/8], so 3, 4 and 1 coordinates.

    Args:
        numel: coordinates of the tensor.
        nnz: of them in each mask.

    Returns:
        float64 ``[len(nnz) + 1]``.
    """
    chances = np.array([1.0])
    for count in nnz:
        p = count / numel if numel else 0.0
        chances = np.convolve(chances, [1 - p, p])
    return chances * numel


@dataclass(frozen=True)
class ConsensusMap:
    """How far several masks agree about the coordinates of one tensor.

    Source: "The Path Not Taken", whose consensus ratio is ``C_ij = (1/R) sum_r M_ij^(r)``, with the ratios of rows
    ``rho_i = mean_j C_ij`` and of columns ``kappa_j = mean_i C_ij``.

    Attributes:
        name: of the tensor.
        shape: of the tensor.
        consensus: coordinates in exactly 0, 1, ... R of R masks, beside independent masks.
        rows: dispersion of the ratios of rows: their variance over that of independent coordinates with the masks'
            densities; None for what is no matrix, and where every mask is empty or full.
        columns: the same of columns.
    """

    name: str
    shape: tuple[int, ...]
    consensus: Consensus
    rows: float | None
    columns: float | None

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], counts: npt.NDArray[np.uint8], nnz: Sequence[int]) -> ConsensusMap:
        """Of the number of masks that hold each coordinate.

        Args:
            name: of the tensor.
            shape: of the tensor.
            counts: uint8 ``[numel]``, R times C.
            nnz: coordinates of each mask in the tensor.
        """
        observed = np.bincount(counts, minlength=len(nnz) + 1)
        expected = independent(counts.size, nnz)
        rows = columns = None
        if len(shape) == 2 and counts.size:
            matrix = counts.reshape(shape)
            # Of R C_ij, whose variance is the sum of the masks' p (1 - p).
            variance = sum(n / counts.size * (1 - n / counts.size) for n in nnz)
            rows, columns = (_dispersion(matrix.mean(axis), variance / shape[axis]) for axis in (1, 0))
        return cls(name, shape, Consensus(tuple(observed.tolist()), tuple(expected.tolist())), rows, columns)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "tensor": self.name,
            "shape": list(self.shape),
            "consensus": self.consensus.to_json(),
            "row_dispersion": self.rows,
            "column_dispersion": self.columns,
        }


MOST_BLOCKS = 64
"""Most blocks of rows, and of columns, that a picture has."""


@dataclass(frozen=True, eq=False)
class ConsensusPicture:
    """The consensus ratios of one matrix, averaged over blocks of rows and columns, to be looked at.

    Attributes:
        map: the same in figures.
        runs: rows and columns of a block; the last may have fewer.
        ratios: float64 ``[at most 64, at most 64]``, mean of C over each block.
    """

    map: ConsensusMap
    runs: tuple[int, int]
    ratios: npt.NDArray[np.float64]

    @classmethod
    def of(cls, name: str, shape: tuple[int, int], counts: npt.NDArray[np.uint8], nnz: Sequence[int]) -> Self:
        """Of the number of masks that hold each coordinate.

        Args:
            name: of the matrix.
            shape: of the matrix.
            counts: uint8 ``[numel]``, R times C.
            nnz: coordinates of each mask in the matrix.
        """
        runs = -(-shape[0] // MOST_BLOCKS), -(-shape[1] // MOST_BLOCKS)
        rows, columns = np.arange(0, shape[0], runs[0]), np.arange(0, shape[1], runs[1])
        sums = np.add.reduceat(np.add.reduceat(counts.reshape(shape), rows, 0, np.int64), columns, 1)
        sizes = np.outer(np.diff(rows, append=shape[0]), np.diff(columns, append=shape[1]))
        return cls(ConsensusMap.of(name, shape, counts, nnz), runs, sums / sizes / len(nnz))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        ratios = [[round(ratio, 6) for ratio in row] for row in self.ratios.tolist()]
        return {**self.map.to_json(), "block": list(self.runs), "ratios": ratios}


def _dispersion(means: npt.NDArray[np.float64], independent_variance: float) -> float | None:
    return float(means.var()) / independent_variance if independent_variance > 0 else None

"""Rows and columns that move together: stripes of a mask, beside coordinates that move one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.analysis.overlap import ratio


@dataclass(frozen=True)
class Lines:
    """The rows, or the columns, of one matrix.

    Attributes:
        count: how many.
        full, empty: shares of them whose coordinates are all in the mask, or none; None without lines.
        variance: of their densities; None without coordinates.
        binomial: p (1 - p) / length, the variance of independent coordinates.
        dispersion: variance / binomial; None for a mask of none or all coordinates.
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
    """The stripes of a matrix.

    Args:
        rows: int64 ``[m]``, coordinates of each row that are in the mask.
        columns: int64 ``[n]``, likewise of each column.
    """
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

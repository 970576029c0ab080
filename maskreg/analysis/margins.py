"""The overlap that masks of the same exponents, rows and columns are expected to have.

Updates are striped: each row and each column has its own rate, from activations and from Adam's second moments. The
null keeps, for each mask and tensor, how many coordinates moved in every class of the source's codes, in every row and
in every column, and nothing else. Its model of one mask is logit P(moved) = a(class) + b(row) + c(column), to the first
order around the rates by class p::

    P = p + v (x_row + y_column)        v = p (1 - p)

x and y are chosen so that every row and every column expects as many coordinates as moved. Expected in both masks is
the sum over coordinates of P_A P_B. Classes are taken to lie in the same columns in every row, so that counts by row
and by column are enough: of a sum over all columns every row has its share.

x and y are fitted to the same coordinates that are compared, so a coordinate in both masks raises the row's x in both,
whatever its row. Products of x_A and x_B therefore leave out what a coordinate has in common with itself, r_A r_B with
r = moved - p: the sum over pairs of different coordinates of a row is (sum of r_A) (sum of r_B) - sum of r_A r_B.

Example: all of one class, p = 1/4 in both masks, and both have moved coordinates in the upper half of the rows alone.
v = 3/16, x = +4/3 and -4/3, so P = 1/2 above and 0 below: twice the overlap of chance, as it is. On a real pair, where
the exponents alone leave 26.4 % of the headroom, this leaves 21.4 %; the logistic model, fitted to every coordinate,
21.0 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.analysis.grid import Grid

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Margins:
    """What rows and columns add to the overlap that is expected by class.

    Attributes:
        by_row: float64 ``[rows]``: the sum over them is the whole addition.
        by_column: float64 ``[columns]``: the same by column.
        unexplained: share of a coordinate's variance that neither rows nor columns explain, the mean of both masks. The
            sums over rows, and those over columns, hold that much of it where nothing else depends on each other.
    """

    by_row: Floats
    by_column: Floats
    unexplained: float

    @property
    def added(self) -> float:
        """Coordinates in both masks that are expected besides those by class."""
        return float(self.by_row.sum())


@dataclass(frozen=True, eq=False)
class _Effects:
    """x or y of one mask.

    Attributes:
        values: float64 ``[lines]``.
        weights: sum of v in each line, that a sum of residuals is divided by.
    """

    values: Floats
    weights: Floats


def margins_of(grid: Grid) -> Margins:
    """Fit both masks of a tensor, and expect their overlap."""
    rows, columns = grid.rows.astype(np.float64), grid.columns.transpose(2, 0, 1).astype(np.float64)
    totals = rows.sum(0)
    n = np.maximum(totals.sum(1), 1)
    p, q = (totals[:, 1] + totals[:, 3]) / n, (totals[:, 2] + totals[:, 3]) / n
    weight = p * (1 - p) * q * (1 - q)
    in_common = np.stack([p * q, -(1 - p) * q, -p * (1 - q), (1 - p) * (1 - q)], axis=1)
    parts, shares, effects = [], [], []
    for lines in (rows, columns):
        a, b = _effects(lines, [1, 3], p), _effects(lines, [2, 3], q)
        shares.append(lines.sum(2) @ weight)
        itself = _divided(lines.reshape(len(lines), -1) @ in_common.reshape(-1), a.weights * b.weights)
        parts.append(shares[-1] * (a.values * b.values - itself))
        effects.append((a.values, b.values))
    whole = max(float(shares[0].sum()), np.finfo(float).tiny)
    (row_a, row_b), (column_a, column_b) = effects
    crossed = ((shares[0] @ row_a) * (shares[1] @ column_b) + (shares[0] @ row_b) * (shares[1] @ column_a)) / whole
    # What the other direction adds is spread over the lines of this one by their weight.
    return Margins(
        parts[0] + shares[0] / whole * (parts[1].sum() + crossed),
        parts[1] + shares[1] / whole * (parts[0].sum() + crossed),
        1 - (_explained(rows, columns, [1, 3], p) + _explained(rows, columns, [2, 3], q)) / 2,
    )


def _effects(lines: Floats, cells: list[int], rate: Floats) -> _Effects:
    weights = lines.sum(2) @ (rate * (1 - rate))
    return _Effects(_divided(lines[:, :, cells].sum((1, 2)) - lines.sum(2) @ rate, weights), weights)


def _explained(rows: Floats, columns: Floats, cells: list[int], rate: Floats) -> float:
    """Share of the variance of one mask that its rows and columns explain."""
    slope = rate * (1 - rate)
    total, explained = max(float(rows.sum((0, 2)) @ slope), np.finfo(float).tiny), 0.0
    for lines in (rows, columns):
        # A coordinate's own variance is v, and its effect is v x.
        explained += float(lines.sum(2) @ slope**2 @ _effects(lines, cells, rate).values ** 2) / total
    return min(explained, 1.0)


def _divided(sums: Floats, weights: Floats) -> Floats:
    return np.divide(sums, weights, out=np.zeros_like(sums), where=weights > 0)

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

What varies is less than without rows and columns. With z the noise of a coordinate, r = z + v (x + y), and r_A r_B is
the sum of four parts. Let e be the share of the variance of r that x and y explain::

    part          share of variance    observed - expected has it    its sums by row    by column
    z_A z_B       (1 - e_A) (1 - e_B)  yes                           yes                yes
    z_A effect_B  (1 - e_A) e_B        no: x_A and y_A fit z_A       that of y_B        that of x_B
    effect_A z_B  e_A (1 - e_B)        no                            that of y_A        that of x_A
    both effects  e_A e_B              no: it is what is expected    no                 no

So the sums by row and those by column have together every part once too often, but the last: of a coordinate's
variance, two-way clustering (:mod:`maskreg.analysis.clusters`) has to subtract 1 - e_A e_B.

Example: all of one class, p = 1/4 in both masks, and both have moved coordinates in the upper half of the rows alone.
v = 3/16, x = +4/3 and -4/3, so P = 1/2 above and 0 below: twice the overlap of chance, as it is. On a real pair, where
the exponents alone leave 26.4 % of the headroom, this leaves 21.4 %; the logistic model, fitted to every coordinate,
21.0 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import CELLS, IN_A, IN_B
from maskreg.analysis.grid import Grid

Floats = npt.NDArray[np.float64]

_TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class Margins:
    """What rows and columns add to the overlap that is expected by class.

    Attributes:
        by_row: float64 ``[rows]``: the sum over them is the whole addition.
        by_column: float64 ``[columns]``: the same by column.
        counted_twice: 1 - e_A e_B, the share of a coordinate's variance that ``by_row`` and ``by_column`` leave once
            too often in the sums by row and by column together.
    """

    by_row: Floats
    by_column: Floats
    counted_twice: float

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
        explained: variance of the mask that they explain, in coordinates.
    """

    values: Floats
    weights: Floats
    explained: float


def margins_of(grid: Grid) -> Margins:
    """Fit both masks of a tensor, and expect their overlap."""
    totals = grid.cells[grid.classes].astype(np.float64)
    n = totals.sum(1)
    p, q = (totals @ inside / np.maximum(n, 1) for inside in (IN_A, IN_B))
    weights = _weights(p, q)
    parts, shares, effects = [], [], []
    for lines in (grid.rows, grid.columns):
        share, itself, *both = lines.sums(weights).T
        a, b = _effects(*both[:3]), _effects(*both[3:])
        shares.append(share)
        parts.append(share * (a.values * b.values - _divided(itself, a.weights * b.weights)))
        effects.append((a, b))
    whole = max(float(shares[0].sum()), _TINY)
    (row_a, row_b), (column_a, column_b) = effects
    crossed = (shares[0] @ row_a.values) * (shares[1] @ column_b.values)
    crossed = (crossed + (shares[0] @ row_b.values) * (shares[1] @ column_a.values)) / whole
    explained = [
        min((row.explained + column.explained) / max(float(n @ (rate * (1 - rate))), _TINY), 1.0)
        for row, column, rate in ((row_a, column_a, p), (row_b, column_b, q))
    ]
    # What the other direction adds is spread over the lines of this one by their weight.
    return Margins(
        parts[0] + shares[0] / whole * (parts[1].sum() + crossed),
        parts[1] + shares[1] / whole * (parts[0].sum() + crossed),
        1 - explained[0] * explained[1],
    )


def _weights(p: Floats, q: Floats) -> Floats:
    """What a coordinate of each class and cell adds to eight sums of its line, float64 ``[k, 4, 8]``.

    They are v_A v_B and r_A r_B; then r, v and v^2 of A; then of B.
    """
    residuals = IN_A - p[:, None], IN_B - q[:, None]
    slopes = (p * (1 - p))[:, None], (q * (1 - q))[:, None]
    of_each = ((residual, slope, slope**2) for residual, slope in zip(residuals, slopes, strict=True))
    sums = (slopes[0] * slopes[1], residuals[0] * residuals[1], *(part for parts in of_each for part in parts))
    return np.stack([np.broadcast_to(part, (p.size, CELLS)) for part in sums], axis=2)


def _effects(residuals: Floats, weights: Floats, squares: Floats) -> _Effects:
    values = _divided(residuals, weights)
    # A coordinate's own variance is v, and its effect is v x.
    return _Effects(values, weights, float(squares @ values**2))


def _divided(sums: Floats, weights: Floats) -> Floats:
    return np.divide(sums, weights, out=np.zeros_like(sums), where=weights > 0)

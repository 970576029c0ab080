"""The overlap that masks of the same exponents, rows and columns are expected to have.

Updates are striped: each row and each column has its own rate, from activations and from Adam's second moments. The
null keeps, for each mask and tensor, how many coordinates moved in every class of the source's codes, in every row and
in every column, and nothing else. :mod:`maskreg.analysis.scales` fits it to both masks, and says what they share then.

It is fitted to the same coordinates that are compared, so of what two masks share beyond chance the share 1 / columns +
1 / rows counts as the rows' and columns' own.

What varies is less than without rows and columns. With z the noise of a coordinate, moved - p is z and the effects of
row and column, and the product of both masks' is the sum of four parts. Let e be the share of a mask's variance that
the effects explain::

    part          share of variance    observed - expected has it         its sums by row    by column
    z_A z_B       (1 - e_A) (1 - e_B)  yes                                yes                yes
    z_A effect_B  (1 - e_A) e_B        no: the effects of A fit z_A       that of columns    that of rows
    effect_A z_B  e_A (1 - e_B)        no                                 that of columns    that of rows
    both effects  e_A e_B              no: it is what is expected         no                 no

So the sums by row and those by column have together every part once too often, but the last: of a coordinate's
variance, two-way clustering (:mod:`maskreg.analysis.clusters`) has to subtract 1 - e_A e_B.

Example: all of one class, p = 1/4 in both masks, and both have moved coordinates in the upper half of the rows alone.
Their rate is 1/2 above and 0 below: twice the overlap of chance, as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import CELLS, IN_A, IN_B
from maskreg.analysis.grid import Grid
from maskreg.analysis.lines import Lines
from maskreg.analysis.scales import Ints, Shared, Side, bins_of, expected_in_both, kinds_of, numel_by, totals_of

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


def margins_of(grid: Grid) -> Margins:
    """Fit both masks of a tensor, and expect their overlap."""
    totals = grid.cells[grid.classes].astype(np.float64)
    n = totals.sum(1)
    p, q = (totals @ inside / np.maximum(n, 1) for inside in (IN_A, IN_B))
    kinds = kinds_of(totals @ (IN_A + IN_B), n)
    of_kind = np.maximum(totals_of(kinds, n), 1)
    rates = totals_of(kinds, n * p) / of_kind, totals_of(kinds, n * q) / of_kind
    rows, columns = (_Direction.of(lines, _weights(p, q), kinds) for lines in (grid.rows, grid.columns))
    expected = expected_in_both(rows.side, columns.side, rates)
    (by_row, within_rows), (by_column, within_columns) = (
        own.added(shared, rates) for own, shared in zip((rows, columns), expected, strict=True)
    )
    # What lines of one bin differ in, in the other direction, is spread over the lines of this one.
    by_row += within_rows + within_columns.sum() / by_row.size
    by_column += within_columns + within_rows.sum() / by_column.size
    variances = (float(n @ (rate * (1 - rate))) for rate in (p, q))
    explained = [
        min((own + other) / max(variance, _TINY), 1.0)
        for own, other, variance in zip(rows.explained, columns.explained, variances, strict=True)
    ]
    return Margins(by_row, by_column, 1 - explained[0] * explained[1])


@dataclass(frozen=True, eq=False)
class _Direction:
    """The rows of a tensor, or its columns.

    Attributes:
        side: the lines in bins.
        lines: their sums, of each mask.
        numel: coordinates by kind of class, float64 ``[kinds, lines]``.
    """

    side: Side
    lines: tuple[_Lines, _Lines]
    numel: Floats

    @classmethod
    def of(cls, lines: Lines, weights: Floats, kinds: Ints) -> _Direction:
        numel, *both = lines.sums(weights).T
        a, b = _Lines(numel, *both[:4]), _Lines(numel, *both[4:])
        bins = a.bins, b.bins
        moved = totals_of(bins[0], a.moved), totals_of(bins[1], b.moved)
        by_kind = lines.numel_by(kinds)
        return cls(Side(bins, numel_by(bins, by_kind), moved), (a, b), by_kind)

    @property
    def explained(self) -> tuple[float, float]:
        """Variance of each mask that the lines explain, in coordinates."""
        a, b = self.lines
        return a.explained, b.explained

    def added(self, shared: Shared, rates: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """What each line is expected to share beyond its classes, as its bins do; and as it differs from them.

        Args:
            shared: what its bins share.
            rates: p of A and q of B by kind of class.
        """
        bins = self.side.bins
        count = np.zeros(shared.fitted.shape)
        np.add.at(count, bins, 1)
        fitted, by_class = ((part / np.maximum(count, 1))[bins] for part in (shared.fitted, shared.by_class))
        busier = self._busier(0, shared, rates), self._busier(1, shared, rates)
        within = fitted * busier[0] * busier[1]
        for axis, part in enumerate(shared.one_by_class):
            # A line that is busier than its bin shares more by as much, of which its own classes expect this already.
            known = part.sum(1 - axis) / np.maximum(count.sum(1 - axis), 1)
            within += busier[axis] * (fitted - known[bins[axis]])
        return fitted - by_class, within

    def _busier(self, mask: int, shared: Shared, rates: tuple[Floats, Floats]) -> Floats:
        """Coordinates of each line beyond those that its bin expects of its classes, as a share of the bin's mean."""
        lines, bins = self.lines[mask], self.side.bins[mask]
        beyond = lines.rest - (self.numel * (shared.rates[mask] - rates[mask][:, None])[:, bins]).sum(0)
        count = totals_of(bins, np.ones(bins.size))
        # Of all lines of a bin together nothing: the fit is of kinds, and not so exact.
        beyond -= (totals_of(bins, beyond) / count)[bins]
        return _divided(beyond, (totals_of(bins, lines.moved) / count)[bins])


class _Lines(NamedTuple):
    """Sums over the coordinates of each line, of one mask: 1; those that moved, r, v and v^2.

    r is moved - p, and v is p (1 - p), with the rate p of the coordinate's class.
    """

    numel: Floats
    moved: Floats
    rest: Floats
    slope: Floats
    square: Floats

    @property
    def effects(self) -> Floats:
        """How far each line raises the logit of its coordinates, to the first order."""
        return _divided(self.rest, self.slope)

    @property
    def explained(self) -> float:
        # A coordinate's own variance is v, and its effect is v x.
        return float(self.square @ self.effects**2)

    @property
    def bins(self) -> Ints:
        return bins_of(self.effects, self.moved, self.numel)


def _weights(p: Floats, q: Floats) -> Floats:
    """What a coordinate of each class and cell adds to nine sums of its line, float64 ``[k, 4, 9]``.

    They are those of :class:`_Lines`: 1, then the others of A, and of B.
    """
    sums = [np.ones((1, 1))]
    for inside, rate in ((IN_A, p), (IN_B, q)):
        slope = (rate * (1 - rate))[:, None]
        sums += [inside[None, :], inside - rate[:, None], slope, slope**2]
    return np.stack([np.broadcast_to(part, (p.size, CELLS)) for part in sums], axis=2)


def _divided(sums: Floats, weights: Floats) -> Floats:
    return np.divide(sums, weights, out=np.zeros_like(sums), where=weights > 0)

"""The overlap that masks of the same exponents, rows and columns are expected to have.

Updates are striped: each row and each column has its own rate, from activations and from Adam's second moments. The
null keeps, for each mask and tensor, how many coordinates moved in every class of the source's codes, in every row and
in every column, and nothing else. It is fitted to both masks, which says what they share then.

Of a tensor of more than ``grid.MOST_POINTS`` coordinates a part is taken, evenly spread over rows and columns. A line
of it is to move as many coordinates as the whole line does beyond what its classes expect, in proportion; lines of
which it has few coordinates are fitted together with those that are alike.

The fit is to the same coordinates that are compared, so of what two masks share beyond chance the share 1 / columns +
1 / rows counts as the rows' and columns' own.

What varies is less than without rows and columns. With z the noise of a coordinate, moved - p is z and the effects of
row and column, and the product of both masks' is the sum of four parts. Let e be the share of a mask's variance that
the effects explain::

    part          share of variance    observed - expected has it         its sums by row    by column
    z_A z_B       (1 - e_A) (1 - e_B)  yes                                yes                yes
    z_A effect_B  (1 - e_A) e_B        no: the effects of A fit z_A       column effects     row effects
    effect_A z_B  e_A (1 - e_B)        no                                 column effects     row effects
    both effects  e_A e_B              no: it is what is expected         no                 no

So the sums by row and those by column have together every part once too often, but the last: of a coordinate's
variance, two-way clustering (:mod:`maskreg.analysis.clusters`) has to subtract 1 - e_A e_B.

Example: all of one class, p = 1/4 in both masks, and both have moved coordinates in the upper half of the rows alone.
Their rate is 1/2 above and 0 below: twice the overlap of chance, as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import CELLS, IN_A, IN_B
from maskreg.analysis.grid import Grid, Labels, Points
from maskreg.native import library

# How far each class, row and column of a matrix moves a mask, fitted to its coordinates.
#
# The model of one mask is bf16 rounding: Gaussian noise whose size is a product of its class's, its row's and its
# column's sizes, and a coordinate moves if the noise exceeds half a step of its grid::
#
#     P = f(a(class) + b(row) + c(column))        f(x) = 2 Q(exp(-x))        Q: upper tail of the normal distribution
#
# exp(x) is the noise in half steps. a, b and c are fitted so that every class, every row and every column expects as
# many coordinates as moved. A row that never moves expects none, and classes that always move in a busy row, or never
# in a calm one, do so in the model too.
#
# Which classes meet in a row and a column matters: in weights with a scale for every row and every column, small
# weights meet in the rows and columns that are small. So the fit takes coordinates as they are, and not what counts by
# row and by column would expect of them.

Floats = npt.NDArray[np.float64]

_ROUNDS, _PRECISION = 20, 3e-4
_FAR = 12.0
_LOW, _HIGH, _STEPS = -3.0, 9.0, 1 << 12
_X = np.linspace(_LOW, _HIGH, _STEPS + 1)
_F = np.array([math.erfc(math.exp(-x) / math.sqrt(2)) for x in _X.tolist()])
_F[0], _F[-1] = 0, 1  # lines that never move expect nothing, and full ones are full
_PER_STEP = _STEPS / (_HIGH - _LOW)


def totals_of(labels: Labels, values: Floats, count: int) -> Floats:
    """Sums of the values of each label below ``count``."""
    return np.bincount(labels, values, count).astype(np.float64)


def fitted(points: Points, moved: Sequence[Floats]) -> Floats:
    """Chances of points to move, float64 ``[n]``, given how many are to move of each class, row and column.

    If the sums of the three differ, the first counts.
    """
    sizes = [
        np.bincount(labels, minlength=own.size).astype(np.float64) for labels, own in zip(points, moved, strict=True)
    ]
    total = float(moved[0].sum())
    aims = [np.clip(own * (total / max(own.sum(), 1e-300)), 0, size) for own, size in zip(moved, sizes, strict=True)]
    # To begin with, what the rate of each says alone. Those that never, or always, move stay where they are.
    rates = [aim / np.maximum(size, 1) for aim, size in zip(aims, sizes, strict=True)]
    mean = float(np.interp(total / max(sizes[0].sum(), 1), _F, _X))
    effects = [
        np.select([rate <= 0, rate >= 1], [-_FAR, _FAR], np.interp(rate, _F, _X) - (mean if axis else 0.0))
        for axis, rate in enumerate(rates)
    ]
    pace, last = 1.0, math.inf
    for number in range(_ROUNDS):
        furthest = 0.0
        for axis in (1, 2, 0):
            chances, slopes = _sums(points, effects, axis)
            lacking = aims[axis] - chances
            furthest = max(furthest, float(np.abs(lacking).sum()))
            steps = lacking / np.maximum(slopes, 1e-9 * np.maximum(sizes[axis], 1))
            effects[axis] = np.clip(effects[axis] + pace * np.clip(steps, -1, 1), -_FAR, _FAR)
        # Of a part of a tensor, not all aims can be met.
        if furthest <= _PRECISION * total or (number > 5 and furthest > 0.9 * last):
            break
        if number == 3:
            # Each round leaves a share of what is lacking; of that share follows how far to overshoot (Young, 1954).
            pace = 2 / (1 + math.sqrt(1 - min(furthest / last, 0.9)))
        last = furthest
    return _chances(points, effects)


def _sums(points: Points, effects: Sequence[Floats], axis: int) -> tuple[Floats, Floats]:
    """Chances and slopes, summed over each class, row or column."""
    labels, count = points[axis], effects[axis].size
    compiled = library()
    sums = np.zeros((count, 4, 2))
    compiled.lib.maskreg_sum_flips(*_described(points, effects), compiled.read(labels), compiled.write(sums))
    chances, rises = sums.sum(1).T
    return chances, rises * _PER_STEP


def _chances(points: Points, effects: Sequence[Floats]) -> Floats:
    compiled = library()
    chances = np.empty(points.classes.size)
    compiled.lib.maskreg_find_flips(*_described(points, effects), compiled.write(chances))
    return chances


def _described(points: Points, effects: Sequence[Floats]) -> tuple[object, object]:
    """What kernels are told of both; the arrays have to stay."""
    compiled = library()
    return (
        compiled.ffi.new("maskreg_points *", [*map(compiled.read, points), points.classes.size]),
        compiled.ffi.new(
            "maskreg_effects *", [*map(compiled.read, effects), compiled.read(_F), _LOW, _PER_STEP, _STEPS]
        ),
    )


_FEWEST = 128
"""Coordinates of a line, or of lines that are alike, on average, that are fitted where not all are taken."""

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
    points, share = grid.points(), grid.share
    totals = grid.cells[grid.classes].astype(np.float64)
    rates = [totals @ inside / np.maximum(totals.sum(1), 1) for inside in (IN_A, IN_B)]
    sums = [lines.sums(_weights(*rates)).T for lines in (grid.rows, grid.columns)]
    a, b = (
        _fitted(points, rate, [own[1 + 3 * mask : 4 + 3 * mask] for own in sums], share) - rate[points.classes]
        for mask, rate in enumerate(rates)
    )
    both = a * b / share
    variances = [float(totals.sum(1) @ (rate * (1 - rate))) for rate in rates]
    explained = [
        min(float(own @ own) / share / max(variance, _TINY), 1.0)
        for own, variance in zip((a, b), variances, strict=True)
    ]
    return Margins(
        totals_of(points.rows, both, len(grid.rows)),
        totals_of(points.columns, both, len(grid.columns)),
        1 - explained[0] * explained[1],
    )


def _fitted(points: Points, rates: Floats, lines: Sequence[Floats], share: float) -> Floats:
    """Chances of the coordinates of one mask, given the rates of its classes.

    ``lines`` are sums over all coordinates of each row, then of each column: those that moved, r and v; r is moved - p,
    and v is p (1 - p), with the rate p of the coordinate's class. Of all coordinates, a ``share`` is taken.
    """
    known = rates[points.classes]
    labels = [points.classes]
    moved = [totals_of(points.classes, known, rates.size)]
    for own, (whole, rest, slope) in zip(points[1:], lines, strict=True):
        aims = totals_of(own, known, rest.size) + rest * share
        together = rest.size if share == 1 else points.classes.size // _FEWEST
        if rest.size > together:
            alike = _alike(np.divide(rest, slope, out=np.zeros_like(rest), where=slope > 0), whole, together)
            own, aims = alike[own], totals_of(alike, aims, int(alike.max()) + 1)
        labels.append(own)
        moved.append(aims)
    return fitted(Points(*labels), moved)


def _alike(effects: Floats, moved: Floats, count: int) -> Labels:
    """Numbers from 0 on that rise with the effect of a line, uint32: alike for neighbors; 0 where nothing moved."""
    order = np.argsort(effects, kind="stable")
    numbers = np.empty(effects.size, np.uint32)
    numbers[order] = 1 + np.arange(effects.size) * count // effects.size
    return np.where(moved > 0, numbers, np.uint32(0))


def _weights(p: Floats, q: Floats) -> Floats:
    """What a coordinate of each class and cell adds to seven sums of its line, float64 ``[k, 4, 7]``.

    They are 1, and those that moved, r and v, of A, then of B.
    """
    sums = [np.ones((1, 1))]
    for inside, rate in ((IN_A, p), (IN_B, q)):
        sums += [inside[None, :], inside - rate[:, None], (rate * (1 - rate))[:, None]]
    return np.stack([np.broadcast_to(part, (p.size, CELLS)) for part in sums], axis=2)

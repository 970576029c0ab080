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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import CELLS
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
_RISES = np.diff(_F)
_CURVE = np.stack([_F, np.append(_RISES, _RISES[-1])], axis=1)
_PER_STEP = _STEPS / (_HIGH - _LOW)


def fitted(points: Points, sizes: Sequence[Floats], moved: Sequence[Floats]) -> Floats:
    """Chances of points to move, float64 ``[n]``, given how many each class, row and column has, and how many move.

    If the sums of the three differ, the first counts.
    """
    total = float(moved[0].sum())
    aims = [np.clip(own * (total / max(own.sum(), 1e-300)), 0, size) for own, size in zip(moved, sizes, strict=True)]
    mean = float(np.interp(total / max(sizes[0].sum(), 1), _F, _X))
    effects: list[Floats] = []
    for aim, size in zip(aims, sizes, strict=True):
        # To begin with, what the rate of each says alone. Those that never, or always, move stay where they are.
        rate = aim / np.maximum(size, 1)
        effect = np.interp(rate, _F, _X) - (mean if effects else 0.0)
        effect[rate <= 0], effect[rate >= 1] = -_FAR, _FAR
        effects.append(effect)
    compiled = library()
    described = _described(points, *effects)
    sums = [np.empty((10, own.size)) for own in effects]
    kernels = [
        (compiled.read(labels), own.shape[1], *map(compiled.write, (own[2:], own[0], own[1])))
        for labels, own in zip(points, sums, strict=True)
    ]
    flattest = [1e-9 * np.maximum(size, 1) for size in sizes]
    pace, last = 1.0, math.inf
    for number in range(_ROUNDS):
        furthest = 0.0
        for axis in (1, 2, 0):
            compiled.lib.maskreg_sum_flips(*described, *kernels[axis])
            lacking, slopes = aims[axis] - sums[axis][0], sums[axis][1] * _PER_STEP
            furthest = max(furthest, float(np.abs(lacking).sum()))
            steps = lacking / np.maximum(slopes, flattest[axis])
            (effects[axis] + pace * steps.clip(-1, 1)).clip(-_FAR, _FAR, out=effects[axis])
        # Of a part of a tensor, not all aims can be met.
        if furthest <= _PRECISION * total or (number > 5 and furthest > 0.9 * last):
            break
        if number == 3:
            # Each round leaves a share of what is lacking; of that share follows how far to overshoot (Young, 1954).
            pace = 2 / (1 + math.sqrt(1 - min(furthest / last, 0.9)))
        last = furthest
    chances = np.empty(points.classes.size)
    compiled.lib.maskreg_find_flips(*described, compiled.write(chances))
    return chances


def _described(points: Points, *effects: Floats) -> Sequence[object]:
    """What kernels are told of points, and of effects if any; the arrays have to stay."""
    compiled = library()
    parts = [compiled.ffi.new("maskreg_points *", [*map(compiled.read, points), points.classes.size])]
    if effects:
        curve = compiled.read(_CURVE), _LOW, _PER_STEP, _STEPS
        parts.append(compiled.ffi.new("maskreg_effects *", [*map(compiled.read, effects), *curve]))
    return parts


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


class Beyond(NamedTuple):
    """What rows and columns add to the chances of points, float64 ``[n]``, and the share of variance that explains."""

    added: Floats
    explained: float


def margins_of(any_pair: Grid, a: Beyond, b: Beyond) -> Margins:
    """The overlap that two masks of a tensor are expected to have; any pair's counts tell of its points."""
    compiled, points, share = library(), any_pair.points, any_pair.share
    by_row, by_column = np.zeros(len(any_pair.rows)), np.zeros(len(any_pair.columns))
    compiled.lib.maskreg_sum_products(
        *_described(points), *map(compiled.read, (a.added, b.added)), *map(compiled.write, (by_row, by_column))
    )
    return Margins(by_row / share, by_column / share, 1 - a.explained * b.explained)


def beyond(any_pair: Grid, grid: Grid, inside: Floats) -> Beyond:
    """Fit one mask to the counts of a pair that it belongs to; ``inside`` tells which cells are in it.

    ``any_pair`` has what all masks of the tensor have in common: its points, and the classes of its lines.
    """
    points, share = any_pair.points, any_pair.share
    cells = grid.cells[grid.classes]
    rates = cells @ inside / cells.sum(1)
    known = rates[points.classes]
    labels, sizes = list(points), list(any_pair.sizes)
    aims = [rates * sizes[0]]
    weights = np.broadcast_to(inside[:, None], (rates.size, CELLS, 1))
    for axis, name in enumerate(("rows", "columns"), 1):
        whole, members = getattr(grid, name).sums(weights)[:, 0], getattr(any_pair, name).members
        rest = whole - (rates[:, None] * members).sum(0)
        aim = _totals(points[axis], known, rest.size) + rest * share
        together = rest.size if share == 1 else known.size // _FEWEST
        if rest.size > together:
            slope = ((rates * (1 - rates))[:, None] * members).sum(0)
            alike = _alike(np.divide(rest, slope, out=np.zeros_like(rest), where=slope > 0), whole, together)
            aim, sizes[axis] = (_totals(alike, values, int(alike.max()) + 1) for values in (aim, sizes[axis]))
            labels[axis] = alike[points[axis]]
        aims.append(aim)
    added = fitted(Points(*labels), sizes, aims) - known
    variance = float(cells.sum(1) @ (rates * (1 - rates)))
    return Beyond(added, min(float(added @ added) / share / max(variance, _TINY), 1.0))


def _totals(labels: Labels, values: Floats, count: int) -> Floats:
    """Sums of the values of each label below ``count``."""
    return np.bincount(labels, values, count).astype(np.float64)


def _alike(effects: Floats, moved: Floats, count: int) -> Labels:
    """Numbers from 0 on that rise with the effect of a line, uint32: alike for neighbors; 0 where nothing moved."""
    order = np.argsort(effects, kind="stable")
    numbers = np.empty(effects.size, np.uint32)
    numbers[order] = 1 + np.arange(effects.size) * count // effects.size
    return np.where(moved > 0, numbers, np.uint32(0))

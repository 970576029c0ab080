"""How far each row and each column moves a mask, fitted from counts, and what two masks then share.

The model of one mask is that of bf16 rounding: Gaussian noise whose size is that of its class, times that of its row,
times that of its column, and a coordinate moves if the noise exceeds half a step of its grid::

    P = f(a(class) + b(row) + c(column))        f(x) = 2 Q(exp(-x))        Q: upper tail of the normal distribution

exp(x) is the noise in half steps. a, b and c are fitted so that every class, every row and every column expects as many
coordinates as moved (iterative scaling, by Newton's steps). A row that never moves expects none, and classes that
always move in a busy row, or never in a calm one, do so in the model too.

Rows whose rates are alike in a mask are one bin, and so are columns; a bin keeps its counts by class, and how often
each class lies in a column does not depend on the row. Then a tensor takes bins x bins x classes numbers, whatever its
size, and the expected overlap is a sum over pairs of bins::

    sum over classes k of  sum (P_A(g, h) N(g, g') P_B(g', h') M(h, h')) / n      N, M: rows and columns by both bins
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BINS = 24
"""Rows, and columns, that are told apart by their rate in one mask."""

KINDS = 12
"""Classes that are told apart by their rates."""

_ROUNDS, _PRECISION = 24, 1e-4
_FAR = 12.0
_LOW, _HIGH, _STEPS = -3.0, 9.0, 1 << 12
_X = np.linspace(_LOW, _HIGH, _STEPS + 1)
_F = np.array([math.erfc(math.exp(-x) / math.sqrt(2)) for x in _X.tolist()])
_F[0], _F[-1] = 0, 1  # lines that never move expect nothing, and full ones are full
_PER_STEP = _STEPS / (_HIGH - _LOW)


@dataclass(frozen=True, eq=False)
class Side:
    """The lines of one direction of a tensor, in bins: rows, or columns.

    Attributes:
        bins: of A and of B, int64 ``[lines]``.
        numel: coordinates by bin of A, bin of B and class, float64 ``[bins, bins, k]``.
        moved: coordinates that moved in A by its bins, then in B by its bins, float64 ``[bins]``.
    """

    bins: tuple[Ints, Ints]
    numel: Floats
    moved: tuple[Floats, Floats]

    def numel_by(self, mask: int) -> Floats:
        """Coordinates by bin of one mask, and class, float64 ``[bins, k]``."""
        numel: Floats = self.numel.sum(1 - mask)
        return numel


def bins_of(effects: Floats, moved: Floats, numel: Floats) -> Ints:
    """Bins of lines that are alike in one mask.

    Lines without any coordinate of it are one bin, and so are those that moved as a whole.

    Args:
        effects: float64 ``[lines]``: how far each raises the rate of its coordinates.
        moved: coordinates of the mask in each.
        numel: all coordinates of each.
    """
    sides = [moved <= 0, moved >= numel]
    bins = np.select(sides, [0, BINS - 1], 1 + _quantiles(effects, moved, np.ones(moved.size), BINS - 2))
    return np.unique(bins, return_inverse=True)[1].astype(np.int64)


def kinds_of(moved: Floats, numel: Floats) -> Ints:
    """Kinds of classes that are alike in both masks.

    Args:
        moved: coordinates of A and of B in each class, together.
        numel: all coordinates of each.
    """
    kinds = _quantiles(moved / np.maximum(numel, 1), moved, numel, KINDS)
    return np.unique(kinds, return_inverse=True)[1].astype(np.int64)


def numel_by(bins: tuple[Ints, Ints], numel: Floats) -> Floats:
    """Coordinates by bin of A, bin of B and kind of class, float64 ``[bins, bins, kinds]``.

    Args:
        bins: of A and of B, int64 ``[lines]``.
        numel: coordinates of every line by kind, float64 ``[kinds, lines]``.
    """
    shape = int(bins[0].max(initial=0)) + 1, int(bins[1].max(initial=0)) + 1
    labels = bins[0] * shape[1] + bins[1]
    sums: Floats = np.stack([np.bincount(labels, own, shape[0] * shape[1]) for own in numel], axis=-1)
    return sums.reshape(*shape, -1)


def totals_of(labels: Ints, values: Floats) -> Floats:
    """Sums of the values of each label, from 0 on."""
    return np.bincount(labels, values).astype(np.float64)


def _quantiles(values: Floats, moved: Floats, numel: Floats, count: int) -> Ints:
    """Numbers from 0 to count - 1 that rise with the values: as much of ``moved`` and ``numel`` together in each."""
    distinct, numbers = np.unique(values, return_inverse=True)
    if distinct.size <= count:
        return numbers.astype(np.int64)
    weights = totals_of(numbers, moved / max(moved.sum(), 1) + numel / max(numel.sum(), 1))
    middle = (np.cumsum(weights) - weights / 2) / weights.sum()
    places: Ints = np.minimum((middle * count).astype(np.int64), count - 1)[numbers]
    return places


class Shared(NamedTuple):
    """Coordinates that two masks are expected to share, by bin of A and bin of B, float64 ``[bins, bins]``.

    Attributes:
        fitted: by the model.
        by_class: by the classes alone, which of a line's own counts expect A q + B p - n p q.
        one_by_class: A q of that, and B p.
        rates: of the bins of A by kind of class, and of those of B, float64 ``[kinds, bins]``.
    """

    fitted: Floats
    by_class: Floats
    one_by_class: tuple[Floats, Floats]
    rates: tuple[Floats, Floats]


def expected_in_both(rows: Side, columns: Side, rates: tuple[Floats, Floats]) -> tuple[Shared, Shared]:
    """What two masks are expected to share.

    Args:
        rows: of the tensor.
        columns: of the tensor.
        rates: p of A and q of B by class, float64 ``[k]``.

    Returns:
        By the bins of the rows, and by those of the columns. Their sums are the same.
    """
    a, b = (np.moveaxis(_fitted(rows, columns, mask, rate), 2, 0) for mask, rate in enumerate(rates))
    whole = np.maximum(rows.numel.sum((0, 1)), 1)[:, None, None]
    of_rows, of_columns = (np.moveaxis(side.numel, 2, 0) for side in (rows, columns))
    share = of_columns / whole
    by_rows = (a @ share @ b.transpose(0, 2, 1) * of_rows).sum(0)
    by_columns = (a.transpose(0, 2, 1) @ of_rows @ b * share).sum(0)
    p, q = (rate[:, None] for rate in rates)
    # Rates of the bins of rows over all columns, and of the bins of columns over all rows.
    row_a, row_b = (a @ share.sum(2)[..., None])[..., 0], (b @ share.sum(1)[..., None])[..., 0]
    column_a = (of_rows.sum(2)[:, None] @ a)[:, 0] / whole[..., 0]
    column_b = (of_rows.sum(1)[:, None] @ b)[:, 0] / whole[..., 0]
    return (
        Shared(by_rows, *_by_class(of_rows, row_a, row_b, p, q), (row_a, row_b)),
        Shared(by_columns, *_by_class(of_columns, column_a, column_b, p, q), (column_a, column_b)),
    )


def _by_class(numel: Floats, a: Floats, b: Floats, p: Floats, q: Floats) -> tuple[Floats, tuple[Floats, Floats]]:
    of_a: Floats = (numel * (a * q)[:, :, None]).sum(0)
    of_b: Floats = (numel * (b * p)[:, None, :]).sum(0)
    linear: Floats = of_a + of_b - (numel * (p * q)[:, :, None]).sum(0)
    return linear, (of_a, of_b)


def _fitted(rows: Side, columns: Side, mask: int, rates: Floats) -> Floats:
    """Chances of one mask by bin of rows, bin of columns and class, float64 ``[bins, bins, k]``."""
    by_row, by_column = rows.numel_by(mask), columns.numel_by(mask)
    whole = np.maximum(by_row.sum(0), 1)
    numel = by_row[:, None, :] * (by_column / whole)[None]
    wanted = (rows.moved[mask], columns.moved[mask], rates * by_row.sum(0))
    effects = [_first(rows.moved[mask], by_row.sum(1)), _first(columns.moved[mask], by_column.sum(1))]
    effects.append(np.interp(rates, _F, _X))
    axes = (1, 2), (0, 2), (0, 1)
    close = _PRECISION * max(rows.moved[mask].sum(), 1)
    for _ in range(_ROUNDS):
        furthest = 0.0
        for number, (aim, others) in enumerate(zip(wanted, axes, strict=True)):
            chance, slope = _chances(*effects)
            lacking = aim - (numel * chance).sum(others)
            furthest = max(furthest, float(np.abs(lacking).sum()))
            steps = lacking / np.maximum((numel * slope).sum(others), 1e-9 * np.maximum(numel.sum(others), 1))
            effects[number] = np.clip(effects[number] + np.clip(steps, -1, 1), -_FAR, _FAR)
        if furthest < close:
            break
    return _chances(*effects)[0]


def _first(moved: Floats, numel: Floats) -> Floats:
    """Effects to begin with: what a bin's rate alone says; those of bins that never, or always, move stay."""
    rates = moved / np.maximum(numel, 1)
    effects: Floats = np.interp(rates, _F, _X) - np.interp(moved.sum() / max(numel.sum(), 1), _F, _X)
    return np.select([moved <= 0, moved >= numel], [-_FAR, _FAR], effects)


def _chances(rows: Floats, columns: Floats, classes: Floats) -> tuple[Floats, Floats]:
    """f and its slope."""
    x = rows[:, None, None] + columns[None, :, None] + classes[None, None, :]
    place = np.clip((x - _LOW) * _PER_STEP, 0, _STEPS)
    at = np.minimum(place.astype(np.int64), _STEPS - 1)
    below, above = _F[at], _F[at + 1]
    return below + (above - below) * (place - at), (above - below) * _PER_STEP

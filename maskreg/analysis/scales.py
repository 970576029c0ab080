"""How far each class, row and column of a matrix moves a mask, fitted to its coordinates.

The model of one mask is that of bf16 rounding: Gaussian noise whose size is that of its class, times that of its row,
times that of its column, and a coordinate moves if the noise exceeds half a step of its grid::

    P = f(a(class) + b(row) + c(column))        f(x) = 2 Q(exp(-x))        Q: upper tail of the normal distribution

exp(x) is the noise in half steps. a, b and c are fitted so that every class, every row and every column expects as many
coordinates as moved. A row that never moves expects none, and classes that always move in a busy row, or never in a
calm one, do so in the model too.

Which classes meet in a row and a column matters: in weights with a scale for every row and every column, small weights
meet in the rows and columns that are small. So the fit takes coordinates as they are, and not what counts by row and by
column would expect of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.native import library

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.uint32]

_ROUNDS, _PRECISION = 20, 3e-4
_FAR = 12.0
_LOW, _HIGH, _STEPS = -3.0, 9.0, 1 << 12
_X = np.linspace(_LOW, _HIGH, _STEPS + 1)
_F = np.array([math.erfc(math.exp(-x) / math.sqrt(2)) for x in _X.tolist()])
_F[0], _F[-1] = 0, 1  # lines that never move expect nothing, and full ones are full
_PER_STEP = _STEPS / (_HIGH - _LOW)


class Points(NamedTuple):
    """Coordinates by the numbers, from 0 on, of their class, row and column: uint32 ``[n]`` each."""

    classes: Labels
    rows: Labels
    columns: Labels


def totals_of(labels: Labels, values: Floats, count: int) -> Floats:
    """Sums of the values of each label below ``count``."""
    return np.bincount(labels, values, count).astype(np.float64)


def fitted(points: Points, moved: Sequence[Floats]) -> Floats:
    """Chances to move, float64 ``[n]``.

    Args:
        points: the coordinates.
        moved: how many are to move of each class, of each row and of each column. If the sums of the three differ, the
            first counts.
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
    if compiled := library():
        sums = np.zeros((count, 4, 2))
        compiled.lib.maskreg_sum_flips(*_described(points, effects), compiled.read(labels), compiled.write(sums))
        chances, rises = sums.sum(1).T
        return chances, rises * _PER_STEP
    chances, rises = _plain(points, effects)
    return totals_of(labels, chances, count), totals_of(labels, rises, count) * _PER_STEP


def _chances(points: Points, effects: Sequence[Floats]) -> Floats:
    if compiled := library():
        chances = np.empty(points.classes.size)
        compiled.lib.maskreg_find_flips(*_described(points, effects), compiled.write(chances))
        return chances
    return _plain(points, effects)[0]


def _described(points: Points, effects: Sequence[Floats]) -> tuple[object, object]:
    """What kernels are told of both; the arrays have to stay."""
    compiled = library()
    assert compiled
    return (
        compiled.ffi.new("maskreg_points *", [*map(compiled.read, points), points.classes.size]),
        compiled.ffi.new(
            "maskreg_effects *", [*map(compiled.read, effects), compiled.read(_F), _LOW, _PER_STEP, _STEPS]
        ),
    )


def _plain(points: Points, effects: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Chances, and how much they rise by a step."""
    x = sum(own[labels] for own, labels in zip(effects, points, strict=True))
    place = np.clip((x - _LOW) * _PER_STEP, 0, _STEPS)
    at = np.minimum(place.astype(np.int64), _STEPS - 1)
    rises = _F[at + 1] - _F[at]
    return _F[at] + rises * (place - at), rises

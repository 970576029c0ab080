"""The null of rows and columns fitted to every coordinate, slowly: what the fit by groups is held to."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from maskreg.analysis.contingency import IN_A, IN_B
from maskreg.analysis.evidence import Lined
from maskreg.analysis.grid import Grid, count_grid, shape_of
from maskreg.analysis.margins import beyond, margins_of
from maskreg.mask import pack
from maskreg.mask.rounding import classes_of
from scripts.calibration.draws import Bits, Codes, Floats, Pair

_FAR, _PRECISION, _ROUNDS = 12.0, 1e-6, 200


def grid_of(pair: Pair) -> Grid:
    """The pair's counts by row and column, as the product counts them."""
    shape = shape_of(pair.codes.shape)
    if shape is None:
        raise ValueError("no matrix")
    a, b, codes = pack(pair.a.reshape(-1)), pack(pair.b.reshape(-1)), pair.codes.reshape(-1)
    grid = Grid(shape)
    grid.add(count_grid(a, b, codes, codes.size, 0, shape))
    return grid


def lined(grid: Grid) -> Lined:
    """Counts with what rows and columns add, as the product fits it."""
    return grid, margins_of(grid, *(beyond(grid, grid, inside) for inside in (IN_A, IN_B)))


class Fit(NamedTuple):
    """Chances of one mask, and their slopes by the logarithm of the noise: float64 ``[rows, columns]``."""

    chances: Floats
    slopes: Floats


_ERFC = np.frompyfunc(math.erfc, 1, 1)


def fitted(moved: Bits, codes: Codes) -> Fit:
    """Chances 2 Q(exp(-a(class) - b(row) - c(column))) that expect what moved in every class, row and column."""
    classes = np.unique(classes_of(codes), return_inverse=True)[1].reshape(codes.shape)
    rows, columns = np.ogrid[: codes.shape[0], : codes.shape[1]]
    labels = classes, np.broadcast_to(rows, codes.shape), np.broadcast_to(columns, codes.shape)
    effects = [np.zeros(int(own.max()) + 1) for own in labels]
    sums = [_totals(own, moved) for own in labels]
    sizes = [_totals(own, np.ones(own.shape)) for own in labels]
    for _ in range(_ROUNDS):
        furthest = 0.0
        for number, own in enumerate(labels):
            fit = _chances(sum(effect[other] for effect, other in zip(effects, labels, strict=True)))
            lacking = sums[number] - _totals(own, fit.chances)
            furthest = max(furthest, float(np.abs(lacking).sum()))
            slopes = np.maximum(_totals(own, fit.slopes), 1e-9 * sizes[number])
            effects[number] = np.clip(effects[number] + np.clip(lacking / slopes, -1, 1), -_FAR, _FAR)
        if furthest < _PRECISION * max(moved.sum(), 1):
            break
    return _chances(sum(effect[other] for effect, other in zip(effects, labels, strict=True)))


def _totals(labels: npt.NDArray[np.int64], values: npt.NDArray[np.generic]) -> Floats:
    return np.bincount(labels.reshape(-1), values.reshape(-1).astype(float)).astype(np.float64)


def _chances(x: Floats) -> Fit:
    steps = np.exp(-x)
    chances: Floats = _ERFC(steps / np.sqrt(2)).astype(np.float64)
    return Fit(chances, np.sqrt(2 / np.pi) * steps * np.exp(-steps * steps / 2))

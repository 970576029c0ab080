"""Intervals computed again from ``docs/concepts/intervals.md`` alone, coordinate by coordinate."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from maskreg.analysis.evidence import (
    BY_BOTH,
    MATCHED,
    STRIPED,
    OverlapFigures,
    OverlapSums,
    figures_of,
    sums_from_classes,
)
from maskreg.checkpoint.roles import ALONE, Channels, Neurons, Shared
from maskreg.mask.rounding import classes_of
from scripts.calibration.draws import Pair, moved_by_rounding, to_codes, to_values
from tests.analysis import dense

Floats = npt.NDArray[np.float64]

WIDTH, NEURONS = 600, 140
SHAPES = {"up": (NEURONS, WIDTH), "down": (WIDTH, NEURONS), "query": (40, WIDTH), "other": (50, 30)}
"""Two matrices of one FFN, one more that reads the stream, and one with neither channels nor neurons."""

SHARED = {
    "up": Shared(Channels("columns", WIDTH), Neurons("ffn", "rows", NEURONS)),
    "down": Shared(Channels("rows", WIDTH), Neurons("ffn", "columns", NEURONS)),
    "query": Shared(Channels("columns", WIDTH)),
    "other": ALONE,
}


class Terms(NamedTuple):
    """Of every coordinate of a tensor: x, y and e, e as W has it, and c and d."""

    x: Floats
    y: Floats
    e: Floats
    alone: Floats
    c: Floats
    d: Floats


def drawn(like: bool) -> dict[str, Pair]:
    """Striped updates of all tensors; unlike ones share fewer coordinates than chance."""
    rng = np.random.default_rng(2)
    pairs = {}
    for name, shape in SHAPES.items():
        rows, columns = (np.exp(rng.normal(0, 0.5, line)) for line in ((shape[0], 1), (1, shape[1])))
        codes = to_codes(rng.normal(0, 0.02, shape) * rows)
        a, b = (moved_by_rounding(rng, to_values(codes), codes, 6e-5 * rows * columns) for _ in range(2))
        b = b | a & (rng.random(shape) < 0.2) if like else b & ~(a & (rng.random(shape) < 0.5))
        pairs[name] = Pair(codes, a, b)
    return pairs


def printed(pairs: dict[str, Pair]) -> OverlapFigures:
    sums = OverlapSums()
    for name, pair in pairs.items():
        grid = dense.grid_of(pair)
        sums += sums_from_classes(grid.cells, "x", "x", dense.lined(grid), shared=SHARED[name])
    return figures_of(sums)


def terms_of(pair: Pair, null: str) -> Terms:
    x, y = pair.a.astype(float), pair.b.astype(float)
    p, q, c, d = (np.zeros(x.shape) for _ in range(4))
    classes = classes_of(pair.codes)
    for number in np.unique(classes):
        inside = classes == number
        p[inside], q[inside] = x[inside].mean(), y[inside].mean()
    for exponent in np.unique(classes >> 1):
        inside = classes >> 1 == exponent
        u, v, n = x[inside], y[inside], inside.sum()
        both, one, other, none = (u * v).sum(), (u * (1 - v)).sum(), ((1 - u) * v).sum(), ((1 - u) * (1 - v)).sum()
        c[inside] = (u * v * none + (1 - u) * (1 - v) * both) / n - both * none / n**2
        d[inside] = (u * (1 - v) * other + (1 - u) * v * one) / n - one * other / n**2
    e = q * x + p * y - p * q
    if null == MATCHED:
        return Terms(x, y, e, e, c, d)
    beyond = [dense.fitted(bits, pair.codes).chances - rate for bits, rate in ((pair.a, p), (pair.b, q))]
    explained = [(own**2).sum() / (rate * (1 - rate)).sum() for own, rate in zip(beyond, (p, q), strict=True)]
    alone = x * y - math.sqrt(1 - explained[0] * explained[1]) * (x - p) * (y - q)
    return Terms(x, y, e + beyond[0] * beyond[1], alone, c, d)


def folded(sums: Floats, most: int) -> Floats:
    run = math.ceil(sums.size / most)
    return np.array([sums[start : start + run].sum() for start in range(0, sums.size, run)])


def centred(sums: Floats) -> float:
    return float(((sums - sums.mean()) ** 2).sum() * sums.size / (sums.size - 1))


def sigma(influences: dict[str, tuple[Floats, Floats]]) -> float:
    """From the influences of all coordinates, in clusters and alone."""
    up, down, query, other = (inside for inside, _ in influences.values())
    channels = folded(up.sum(0) + down.sum(1) + query.sum(0), 512)
    neurons = folded(up.sum(1) + down.sum(0), 128)
    assert (channels.size, neurons.size) == (300, 70)
    variance = sum(map(centred, (channels, neurons, query.sum(1), other.sum(0), other.sum(1))))
    alone = sum(float((own**2).sum()) for _, own in influences.values())
    return math.sqrt(max(variance - alone, alone / 2))


@pytest.mark.parametrize(("null", "close", "like"), [(MATCHED, 1e-9, True), (STRIPED, 2e-3, False)])
def test_intervals_are_those_of_the_formulas(null: str, close: float, like: bool) -> None:
    pairs = drawn(like)
    figures = printed(pairs)
    terms = {name: terms_of(pair, null) for name, pair in pairs.items()}
    totals: list[float] = np.sum(
        [(t.x.size, t.x.sum(), t.y.sum(), (t.x * t.y).sum(), t.e.sum()) for t in terms.values()], axis=0
    ).tolist()
    size, a, b, both, expected = totals
    found = figures.nulls[null]
    assert found.expected == pytest.approx(expected, rel=close / 10)
    most, least = min(a, b), max(0.0, a + b - size)
    headroom = (both - expected) / (most - expected if both >= expected else expected - least)
    assert (headroom > 0) == like
    ratio = both / expected

    def of_headroom(t: Terms, e: Floats) -> Floats:
        if both >= expected:
            rise: Floats = t.x * t.y - e - headroom * ((t.x if a < b else t.y) - e)
            return rise / (most - expected)
        fall: Floats = t.x * t.y - e - headroom * (e - (t.x + t.y - 1 if least else 0.0))
        return fall / (expected - least)

    for figure, influence, interval in (
        (headroom, of_headroom, found.headroom_interval),
        (ratio, lambda t, e: (t.x * t.y - ratio * e) / expected, found.ratio_interval),
    ):
        half = 1.959964 * sigma({name: (influence(t, t.e), influence(t, t.alone)) for name, t in terms.items()})
        assert interval is not None
        assert interval[1] - interval[0] == pytest.approx(2 * half, rel=max(close, 1e-6))
        assert (interval[0] + interval[1]) / 2 == pytest.approx(figure, abs=close)
    alike, apart = (sum(odds) for odds in zip(*(map(_odds, pairs.values())), strict=True))
    half = 1.959964 * sigma({name: (t.c / alike - t.d / apart,) * 2 for name, t in terms.items()})
    low, high = figures.mantel_haenszel_intervals[BY_BOTH] or (0.0, 0.0)
    assert math.log(high / low) == pytest.approx(2 * half, rel=1e-6)
    assert math.log(high * low) == pytest.approx(2 * math.log(alike / apart))


def _odds(pair: Pair) -> tuple[float, float]:
    """C and D of a tensor."""
    exponents, alike, apart = classes_of(pair.codes) >> 1, 0.0, 0.0
    for exponent in np.unique(exponents):
        x, y = pair.a[exponents == exponent], pair.b[exponents == exponent]
        alike += float((x & y).sum() * (~x & ~y).sum()) / x.size
        apart += float((x & ~y).sum() * (~x & y).sum()) / x.size
    return alike, apart

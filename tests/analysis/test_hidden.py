"""The overlap of runs that begin off the grid, against draws and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.hidden import both_flip, hidden_scale

RATES = st.floats(1e-6, 0.999)


def flips(rng: np.random.Generator, places: np.ndarray, scale: float) -> np.ndarray:
    moved = places + rng.normal(0, scale, places.size)
    return (moved < 0) | (moved > 1)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.1), (0.02, 0.05), (0.7, 0.9)])
def test_chances_are_those_of_draws(a: float, b: float) -> None:
    rng = np.random.default_rng(0)
    places = rng.random(400_000)
    x, y = flips(rng, places, hidden_scale(a)), flips(rng, places, hidden_scale(b))
    both = float(both_flip(np.array([a]), np.array([b]))[0])
    for drawn, chance in ((x, a), (y, b), (x & y, both)):
        assert abs(drawn.mean() - chance) < 5 * math.sqrt(chance * (1 - chance) / places.size)


@given(RATES, RATES)
def test_it_lies_between_independence_and_containment(a: float, b: float) -> None:
    both = float(both_flip(np.array([a]), np.array([b]))[0])
    assert a * b * (1 - 1e-9) <= both <= min(a, b)
    assert both == float(both_flip(np.array([b]), np.array([a]))[0])


def test_small_equal_rates_share_29_percent() -> None:
    # Integral of Q(x)^2 over that of Q(x), from 0 to infinity: 1 - 1 / sqrt(2).
    for rate in (1e-6, 1e-4):
        assert both_flip(np.array([rate]), np.array([rate]))[0] / rate == pytest.approx(1 - math.sqrt(0.5), rel=1e-9)


def test_nothing_and_everything() -> None:
    assert both_flip(np.array([0.0, 1.0, 0.3]), np.array([0.4, 0.2, 1.0])).tolist() == [0.0, 0.2, 0.3]

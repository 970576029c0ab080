"""The rounding null's noise: its distribution, its seed, and the density that it is fitted to."""

from __future__ import annotations

import numpy as np
import pytest

from maskreg.analysis.matrix import fitted_scale, noisy, normals, rounded


def codes(scale: float, shape: tuple[int, ...] = (512, 256), seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)
    return rounded(values)


def test_the_numbers_are_normal() -> None:
    drawn = normals(7, "w", 0, 1 << 20).astype(np.float64)
    count = drawn.size
    assert abs(drawn.mean()) < 4 / np.sqrt(count)
    assert drawn.var() == pytest.approx(1, abs=4 * np.sqrt(2 / count))
    assert (drawn**4).mean() == pytest.approx(3, abs=4 * np.sqrt(96 / count))
    for edge, tail in ((1.0, 0.158655), (2.0, 0.0227501), (3.0, 0.00134990)):
        for found in ((drawn > edge).mean(), (drawn < -edge).mean()):
            assert found == pytest.approx(tail, abs=4 * np.sqrt(tail / count))
    for lag in (1, 1024, 2048):
        assert abs((drawn[lag:] * drawn[:-lag]).mean()) < 4 / np.sqrt(count)


def test_a_coordinate_has_its_number_beside_any_other_draws() -> None:
    whole = normals(7, "w", 0, 3 * 4096 + 5)
    assert np.array_equal(normals(7, "w", 4096, 4096), whole[4096:8192])
    assert np.array_equal(normals(7, "w", 0, 100), whole[:100])


@pytest.mark.parametrize("density", [0.02, 0.25, 0.47, 0.8])
def test_the_null_has_the_density_that_it_was_fitted_to(density: float) -> None:
    before = codes(0.03)
    scale = fitted_scale(before, round(density * before.size))
    assert scale is not None
    moved = rounded(noisy(before, scale, 3, "w")) != before
    assert moved.mean() == pytest.approx(density, abs=4 * np.sqrt(density / before.size))


def test_where_nothing_or_everything_moved_there_is_no_null() -> None:
    before = codes(0.03, (16, 16))
    assert fitted_scale(before, 0) is None
    assert fitted_scale(before, before.size) is None
    assert fitted_scale(np.full((4, 4), 0x7FC0, np.uint16), 3) is None


def test_rounding_is_to_the_nearest_and_ties_to_even() -> None:
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1.0], np.float32)
    assert rounded(values).tolist() == [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xBF80]

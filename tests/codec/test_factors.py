"""Factors are found where an update has few components, not where rows and columns merely differ; always the same."""

import numpy as np
import numpy.typing as npt
import pytest

from maskreg.codec.contexts import MAX_FACTOR, Matrix
from maskreg.codec.factors import fit_factors, levels_of_tokens, size_bounds
from maskreg.codec.rans import TOKENS
from maskreg.codec.subspace import COMPONENTS
from maskreg.codec.ulp_steps import LITERAL, MIDDLE, tokens_of
from tests.codec.samples import codes

Codes = npt.NDArray[np.uint16]
Factors = tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]

ROWS, WIDTH = 256, 192


def updated(update: npt.NDArray[np.float64], size: float = 1e-4) -> tuple[Codes, Codes]:
    source = codes(np.random.default_rng(1).normal(0, 0.02, update.shape))
    before = (source.astype(np.uint32) << 16).view(np.float32)
    return source.reshape(-1), codes(before + size * update).reshape(-1)


def fit(source: Codes, target: Codes, column: int = 0) -> Factors | None:
    tokens, counts = np.empty(source.size, np.uint8), np.zeros((256, TOKENS), np.int64)
    tokens_of(source, target, tokens, counts)
    rows = -(-(column + source.size) // WIDTH)
    return fit_factors(Matrix(source, tokens, rows, WIDTH, column), counts)


def low_rank(rank: int, noise: float) -> npt.NDArray[np.float64]:
    draw = np.random.default_rng(0)
    return draw.normal(0, 1, (ROWS, rank)) @ draw.normal(0, 1, (rank, WIDTH)) + draw.normal(0, noise, (ROWS, WIDTH))


@pytest.mark.parametrize("rank", [1, 3])
def test_components_are_found(rank: int) -> None:
    update = low_rank(rank, 0.5)
    factors = fit(*updated(update))
    assert factors is not None
    of_rows, of_columns = factors
    assert of_rows.shape == (rank, ROWS) and of_columns.shape == (rank, WIDTH)
    assert of_rows.dtype == of_columns.dtype == np.int8
    assert max(np.abs(of_rows).max(), np.abs(of_columns).max()) <= MAX_FACTOR
    predicted = of_rows.astype(float).T @ of_columns
    assert np.corrcoef(predicted.reshape(-1), update.reshape(-1))[0, 1] > 0.85
    signs = np.sign(predicted) == np.sign(update)
    assert signs[np.abs(update) > 1].mean() > 0.95


def test_more_components_than_are_looked_for_are_no_harm() -> None:
    factors = fit(*updated(low_rank(40, 0.1)))
    assert factors is None or len(factors[0]) <= COMPONENTS


def test_a_block_that_begins_within_a_row_has_the_same_directions() -> None:
    source, target = updated(low_rank(1, 0.5))
    whole, part = fit(source, target), fit(source[77:], target[77:], column=77)
    assert whole is not None and part is not None
    assert abs(np.corrcoef(whole[1][0], part[1][0])[0, 1]) > 0.98


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_none_are_found_in_noise(seed: int, spread: float) -> None:
    """Also where rows and columns move by very different amounts."""
    draw = np.random.default_rng(seed)
    scales = np.exp(spread * (draw.normal(0, 1, (ROWS, 1)) + draw.normal(0, 1, (1, WIDTH))))
    assert fit(*updated(draw.normal(0, 1, (ROWS, WIDTH)) * scales)) is None


def test_the_same_update_has_the_same_factors() -> None:
    source, target = updated(low_rank(3, 0.5))
    one, other = fit(source, target), fit(source.copy(), target.copy())
    assert one is not None and other is not None
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_levels_follow_the_change_of_the_number() -> None:
    counts = np.zeros((256, TOKENS), np.int64)
    counts[120, [MIDDLE + 1, MIDDLE - 1]], counts[121, MIDDLE], counts[119, LITERAL] = 90, 500, 9
    counts[[121, 119, 110], MIDDLE + 1] = counts[120, MIDDLE + 17] = counts[119, MIDDLE - 3] = counts[255] = 1
    levels = levels_of_tokens(counts)
    assert levels[120, MIDDLE + 1] == 2 and levels[120, MIDDLE - 1] == -2
    assert levels[121, MIDDLE + 1] == 3 and levels[119, MIDDLE + 1] == 1 and levels[110, MIDDLE + 1] == 0
    assert levels[120, MIDDLE + 17] == 3 and levels[119, MIDDLE - 3] == -3 and levels[121, MIDDLE + 2] == 0
    assert not levels[:, [MIDDLE, LITERAL]].any() and not levels[255].any()
    assert np.array_equal(levels[256:], -levels[:256])
    assert not levels_of_tokens(np.zeros((256, TOKENS), np.int64)).any()


def test_sizes_are_about_equally_common() -> None:
    draw = np.random.default_rng(0)
    one, other = draw.integers(-20, 21, (2, ROWS)).astype(np.int8), draw.integers(-20, 21, (2, WIDTH)).astype(np.int8)
    bounds = size_bounds(one, other)
    assert bounds.dtype == np.int16 and (np.diff(bounds) >= 0).all()
    sizes = (np.abs(one.astype(int).T @ other.astype(int))[..., None] >= bounds).sum(axis=-1)
    assert np.bincount(sizes.reshape(-1), minlength=8).min() > sizes.size / 8 * 0.7
    assert size_bounds(np.zeros((1, 9), np.int8), np.zeros((1, 9), np.int8)).max() <= 1

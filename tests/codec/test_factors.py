"""Factors are found where an update has few components, not where rows and columns merely differ; always the same."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.codec.contexts import MAX_FACTOR, Matrix
from maskreg.codec.factors import fit_factors, size_bounds
from maskreg.codec.ulp_steps import TOKENS, tokens_of
from maskreg.parallel import Buffers
from tests.codec.samples import codes, matrix
from tests.kernels import agreed

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
    return fit_factors(Matrix(source, tokens, rows, WIDTH, column), counts, Buffers())


def low_rank(rank: int, noise: float) -> npt.NDArray[np.float64]:
    draw = np.random.default_rng(0)
    return draw.normal(0, 1, (ROWS, rank)) @ draw.normal(0, 1, (rank, WIDTH)) + draw.normal(0, noise, (ROWS, WIDTH))


@pytest.mark.parametrize("rank", [1, 3])
def test_components_are_found(kernels: str, rank: int) -> None:
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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_none_are_found_in_noise(seed: int, spread: float) -> None:
    """Also where rows and columns move by very different amounts."""
    draw = np.random.default_rng(seed)
    scales = np.exp(spread * (draw.normal(0, 1, (ROWS, 1)) + draw.normal(0, 1, (1, WIDTH))))
    assert fit(*updated(draw.normal(0, 1, (ROWS, WIDTH)) * scales)) is None


EDGES = st.sampled_from([15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1_023, 1_025])


@given(st.integers(2, 140), st.integers(1, 140) | EDGES, st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_factors_of_any_shape_are_the_same_in_every_build(rows: int, width: int, seed: int) -> None:
    """Fitted to as few directions as there are rows, from within a row on, also where codes are no numbers."""
    draw = np.random.default_rng(seed)
    source, target = matrix(rows, width, "low rank", 1e-4, seed)
    source[draw.random(source.size) < 0.05] |= 0x7F80
    source[draw.random(source.size) < 0.05] &= 0x807F
    target[draw.random(source.size) < 0.02] ^= 0x8000
    column = int(draw.integers(width))
    source, target = source[column:], target[column:]
    tokens, counts = np.empty(source.size, np.uint8), np.zeros((256, TOKENS), np.int64)
    tokens_of(source, target, tokens, counts)

    def compute() -> list[npt.NDArray[np.generic]]:
        factors = fit_factors(Matrix(source, tokens, rows, width, column), counts, Buffers())
        return [] if factors is None else [*factors, size_bounds(*factors)]

    agreed(compute)


def test_size_classes_of_predictions_are_equally_common(kernels: str) -> None:
    of_rows, of_columns = (np.random.default_rng(n).integers(-31, 32, (5, n)).astype(np.int8) for n in (120, 100))
    predicted = np.abs(of_rows.T.astype(int) @ of_columns).reshape(-1)
    classes = (predicted[:, None] >= size_bounds(of_rows, of_columns)).sum(axis=1)
    assert np.allclose(np.bincount(classes, minlength=8), predicted.size / 8, rtol=0.05)

"""Scales follow how much rows and columns move beyond what their exponents explain."""

import numpy as np
import numpy.typing as npt
import pytest

from maskreg.codec.contexts import MAX_SCALE, Matrix
from maskreg.codec.scales import count_moved, fit_scales
from maskreg.codec.ulp_steps import MIDDLE, TOKENS, tokens_of
from tests.codec.samples import codes, matrix
from tests.kernels import agreed

ROWS, WIDTH = 300, 256

Scales = npt.NDArray[np.int8]


def fit(
    row: npt.NDArray[np.float64], column: npt.NDArray[np.float64], *, begin: int = 0, size: float = 2e-5
) -> tuple[Scales, Scales]:
    """Scales of an update of noise whose rows and columns have these sizes, in half exponents."""
    draw = np.random.default_rng(2)
    source = codes(draw.normal(0, 0.02, (ROWS, WIDTH)))
    update = size * draw.normal(0, 1, (ROWS, WIDTH)) * 2 ** ((row[:, None] + column) / 2)
    target = codes((source.astype(np.uint32) << 16).view(np.float32) + update)
    before, after = source.reshape(-1)[begin:], target.reshape(-1)[begin:]
    tokens, counts = np.empty(before.size, np.uint8), np.zeros((256, TOKENS), np.int64)
    tokens_of(before, after, tokens, counts)
    return fit_scales(Matrix(before, tokens, ROWS, WIDTH, begin), counts)


NONE = np.zeros(ROWS), np.zeros(WIDTH)


@pytest.mark.parametrize("begin", [0, 100])
def test_scales_are_found(kernels: str, begin: int) -> None:
    draw = np.random.default_rng(0)
    true = draw.normal(0, 2.5, ROWS), draw.normal(0, 2.5, WIDTH)
    for fitted, expected in zip(fit(*true, begin=begin), true, strict=True):
        assert fitted.shape == expected.shape and fitted.dtype == np.int8
        assert np.corrcoef(fitted, expected)[0, 1] > 0.85
        assert abs(float(fitted.mean())) <= 1
        assert np.abs(fitted).max() <= MAX_SCALE


@pytest.mark.parametrize(
    ("rows", "width"),
    [(1, 1), (1, 70), (70, 1), (32, 32), (254, 33), (255, 65), (257, 513), (40, 1_025), (1_000, 64), (4, 4_100)],
)
@pytest.mark.parametrize(("begin", "end"), [(0, 0), (1, 0), (9, 5)])
def test_scales_are_the_same_in_every_build(rows: int, width: int, begin: int, end: int) -> None:
    """Also where a block begins within a row, or ends before the last columns do."""
    begin, end = min(begin, width - 1), min(end, width - 1) if rows > 1 else 0
    source, target = (codes[begin : codes.size - end] for codes in matrix(rows, width, "striped", 1e-4))
    tokens, counts = np.empty(source.size, np.uint8), np.zeros((256, TOKENS), np.int64)
    tokens_of(source, target, tokens, counts)
    block = Matrix(source, tokens, rows, width, begin)
    by_row, by_column, *_ = agreed(lambda: [*count_moved(block), *fit_scales(block, counts)])
    moved = np.zeros((rows, width), np.int32)
    moved.reshape(-1)[begin : begin + source.size] = tokens != MIDDLE
    assert np.array_equal(by_row, moved.sum(axis=1)) and np.array_equal(by_column, moved.sum(axis=0))


def test_rows_that_stand_still_do_not_hide_the_others(kernels: str) -> None:
    # Unmoved numbers of the smallest exponents: a rate of 0 there must not become the rate of all larger ones.
    rows = np.random.default_rng(0).normal(0, 2.5, ROWS)
    rows[::10] = -60
    row_scales, _ = fit(rows, NONE[1])
    still = np.arange(ROWS) % 10 == 0
    assert row_scales[still].max() < np.median(row_scales[~still])
    assert np.corrcoef(row_scales[~still], rows[~still])[0, 1] > 0.85

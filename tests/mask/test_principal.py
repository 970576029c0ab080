"""The principal mask against numpy's singular values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import maskreg.mask.ranking
from maskreg.mask.ranking import default_rank, matrices_of, principal


def made(weights: npt.NDArray[np.float32], rank: int, wanted: int) -> npt.NDArray[np.bool_]:
    shape = (weights.shape[0], weights.shape[1])
    return np.concatenate(list(principal(lambda start, stop: weights[start:stop], shape, rank, wanted)))


def scores(weights: npt.NDArray[np.float32], rank: int) -> npt.NDArray[np.float64]:
    u, s, v = np.linalg.svd(weights.astype(np.float64), full_matrices=False)
    result: npt.NDArray[np.float64] = np.abs((u[:, :rank] * s[:rank]) @ v[:rank]).reshape(-1)
    return result


@pytest.mark.torch
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 45), st.floats(0, 1), st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_against_singular_values(rows: int, columns: int, rank: int, share: float, seed: int) -> None:
    weights = np.random.default_rng(seed).normal(0, 0.02, (rows, columns)).astype(np.float32)
    wanted = round(share * weights.size)
    taken = made(weights, rank, wanted)
    assert taken.sum() == wanted
    if 0 < wanted < weights.size:
        expected = scores(weights, rank)
        # Scores that fp32 does not tell apart can come in another order.
        assert expected[taken].min() >= expected[~taken].max() * (1 - 1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(50, 24), (24, 50)])
def test_blocks_do_not_matter(kernels: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(2).normal(0, 0.02, shape).astype(np.float32)
    whole = made(weights, 5, 300)
    monkeypatch.setattr(maskreg.mask.ranking, "ROWS_NUMEL", 7 * shape[1])
    assert np.array_equal(made(weights, 5, 300), whole)


@pytest.mark.torch
def test_equal_scores_are_taken_by_place(kernels: str) -> None:
    weights = np.ones((6, 4), np.float32)
    assert np.flatnonzero(made(weights, 1, 7)).tolist() == list(range(7))


@pytest.mark.torch
def test_what_is_not_finite_counts_as_nothing() -> None:
    weights = np.random.default_rng(4).normal(0, 1, (20, 20)).astype(np.float32)
    zeroed = weights.copy()
    weights[3, 4], weights[5, 6], weights[7, 8] = np.nan, np.inf, -np.inf
    zeroed[3, 4] = zeroed[5, 6] = zeroed[7, 8] = 0
    assert np.array_equal(made(weights, 2, 90), made(zeroed, 2, 90))


def test_matrices_and_ranks() -> None:
    assert matrices_of(()) == (1, (1, 1))
    assert matrices_of((7,)) == (1, (1, 7))
    assert matrices_of((7, 9)) == (1, (7, 9))
    assert matrices_of((2, 3, 4, 5)) == (6, (4, 5))
    assert [default_rank(shape) for shape in ((1, 900), (14, 30), (900, 256))] == [1, 1, 26]

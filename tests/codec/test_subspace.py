"""Directions: exact products, whatever the shape, and the components that carry most of a matrix."""

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.codec.subspace import (
    COMPONENTS,
    as_directions,
    backward,
    excess,
    find_subspace,
    forward,
    orthogonal,
    random_signs,
    sorted_subspace,
)
from maskreg.native import NUMPY, using

SIZES = st.integers(0, 140) | st.sampled_from([255, 256, 257, 1023, 1024, 1025])
ROWS = st.integers(0, 140) | st.sampled_from([255, 256, 257])
COUNTS = st.integers(1, COMPONENTS)
SEEDS = st.integers(0, 1 << 32)


@given(ROWS, SIZES, COUNTS, SEEDS)
@settings(max_examples=80)
def test_products_are_exact(kernels: str, rows: int, width: int, count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    # Also where all are as large as can be.
    for levels in (draw.integers(-3, 4, (rows, width)).astype(np.int8), np.full((rows, width), -3, np.int8)):
        across, down = (draw.choice([-127, 5, 127], (count, n)).astype(np.int8) for n in (width, rows))
        across[0], down[0] = 127, 127
        assert np.array_equal(forward(levels, across), across.astype(int) @ levels.T.astype(int))
        assert np.array_equal(backward(levels, down), down.astype(int) @ levels.astype(int))


def vectors_of(count: int, n: int, seed: int) -> npt.NDArray[np.int32]:
    """Vectors of very different sizes, of which one depends on those before it and one may be 0."""
    draw = np.random.default_rng(seed)
    sizes = 10 ** draw.uniform(0, 7, (count, 1))
    vectors = np.rint(draw.normal(0, 1, (count, n)) * sizes).astype(np.int32)
    vectors[count // 2] = 3 * vectors[0] - vectors[-1]
    vectors[draw.integers(0, 4 * count) % (count + 1) - 1] *= seed % 2
    return vectors


@given(ROWS, SIZES, COUNTS, SEEDS)
@settings(max_examples=60)
def test_directions_are_those_of_numpy(kernels: str, rows: int, width: int, count: int, seed: int) -> None:
    sums, rotation = vectors_of(count, rows, seed), np.random.default_rng(seed).normal(0, 1, (count, count // 2 + 1))
    vectors = np.random.default_rng(seed).integers(-127, 128, (count, width)).astype(np.int8)
    vectors[-1] = vectors[0]
    levels = np.random.default_rng(seed).integers(-3, 4, (rows, width)).astype(np.int8)

    def all_of_them() -> list[npt.NDArray[np.generic]]:
        subspace = sorted_subspace(vectors, sums)
        directions = [random_signs(count, rows), orthogonal(sums), as_directions(sums, rotation)]
        return [*directions, *subspace, excess(subspace, levels)]

    computed = all_of_them()
    with using(NUMPY):
        assert all(np.array_equal(*pair) for pair in zip(computed, all_of_them(), strict=True))


def test_the_strongest_directions_come_first_and_are_orthonormal(kernels: str) -> None:
    draw = np.random.default_rng(0)
    matrix = draw.normal(0, 1, (300, 2)) * [1.5, 0.8] @ draw.normal(0, 1, (2, 90)) + draw.normal(0, 0.3, (300, 90))
    levels = np.clip(np.rint(matrix), -3, 3).astype(np.int8)
    subspace = find_subspace(levels[::2].copy(), random_signs(150, 90), 2)
    directions = subspace.rotation.T @ subspace.vectors
    assert np.allclose(directions @ directions.T, np.eye(COMPONENTS), atol=1e-6)
    assert (np.diff(subspace.powers) <= 0).all()
    _, _, expected = np.linalg.svd(levels[::2].astype(float))
    assert np.abs(np.diag(directions[:2] @ expected[:2].T)).min() > 0.98
    shares = excess(subspace, levels[1::2].copy())
    assert shares[:2].min() > 0.05 and shares[2:].max() < 0.005


def test_a_matrix_without_entries_that_moved_has_no_directions(kernels: str) -> None:
    subspace = find_subspace(np.zeros((40, 50), np.int8), random_signs(40, 50), 2)
    assert not subspace.powers.any() and np.isfinite(subspace.rotation).all()


def test_rows_vary_in_no_more_directions_than_there_are(kernels: str) -> None:
    levels = np.random.default_rng(0).integers(-3, 4, (5, 90)).astype(np.int8)
    subspace = find_subspace(levels, random_signs(5, 90), 1)
    directions = subspace.rotation.T @ subspace.vectors
    assert len(directions) == 5
    # Together they span the rows, up to the rounding of vectors.
    assert np.abs(levels - levels @ directions.T @ directions).max() < 0.2

"""Directions: exact products, whatever the shape, and the components that carry most of a matrix."""

import numpy as np
import pytest

from maskreg.codec.subspace import COMPONENTS, backward, excess, find_subspace, forward


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 40), (64, 33), (67, 500), (200, 32)])
def test_products_are_exact(rows: int, width: int) -> None:
    draw = np.random.default_rng(rows)
    # Also where all are as large as can be.
    for levels in (draw.integers(-3, 4, (rows, width)).astype(np.int16), np.full((rows, width), -3, np.int16)):
        across, down = (draw.choice([-127, 5, 127], (4, n)).astype(np.int16) for n in (width, rows))
        across[0], down[0] = 127, 127
        by_row, by_column = np.empty((4, rows), np.int32), np.empty((4, width), np.int32)
        forward(levels, across, by_row)
        backward(levels, down, by_column)
        assert np.array_equal(by_row, across.astype(int) @ levels.T.astype(int))
        assert np.array_equal(by_column, down.astype(int) @ levels.astype(int))


def test_the_strongest_directions_come_first_and_are_orthonormal() -> None:
    draw = np.random.default_rng(0)
    matrix = draw.normal(0, 1, (300, 2)) * [1.5, 0.8] @ draw.normal(0, 1, (2, 90)) + draw.normal(0, 0.3, (300, 90))
    levels = np.clip(np.rint(matrix), -3, 3).astype(np.int16)
    subspace = find_subspace(levels[::2].copy())
    directions = subspace.rotation.T @ subspace.vectors
    assert np.allclose(directions @ directions.T, np.eye(COMPONENTS), atol=1e-6)
    assert (np.diff(subspace.powers) <= 0).all()
    _, _, expected = np.linalg.svd(levels[::2].astype(float))
    assert np.abs(np.diag(directions[:2] @ expected[:2].T)).min() > 0.98
    shares = excess(subspace, levels[1::2].copy())
    assert shares[:2].min() > 0.05 and shares[2:].max() < 0.005


def test_a_matrix_without_entries_that_moved_has_no_directions() -> None:
    subspace = find_subspace(np.zeros((40, 50), np.int16))
    assert not subspace.powers.any() and np.isfinite(subspace.rotation).all()

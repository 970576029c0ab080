"""Directions: the components that carry most of a matrix. test_factors.py compares kernels with all of this."""

import numpy as np

from maskreg.codec.factors import COMPONENTS, excess, find_subspace, random_signs


def test_the_strongest_directions_come_first_and_are_orthonormal() -> None:
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


def test_a_matrix_without_entries_that_moved_has_no_directions() -> None:
    subspace = find_subspace(np.zeros((40, 50), np.int8), random_signs(40, 50), 2)
    assert not subspace.powers.any() and np.isfinite(subspace.rotation).all()


def test_rows_vary_in_no_more_directions_than_there_are() -> None:
    levels = np.random.default_rng(0).integers(-3, 4, (5, 90)).astype(np.int8)
    subspace = find_subspace(levels, random_signs(5, 90), 1)
    directions = subspace.rotation.T @ subspace.vectors
    assert len(directions) == 5
    # Together they span the rows, up to the rounding of vectors.
    assert np.abs(levels - levels @ directions.T @ directions).max() < 0.2

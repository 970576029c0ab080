"""Angles of known rotations, spectra and projections against dense definitions, and similarity of subspaces."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.angles import (
    TOLERANCE,
    Method,
    angle_figures,
    decompose,
    principal_angles,
    projection_figures,
    projection_ratio,
    singular_values,
    spectral_shift,
    subspace_similarity,
)


def orthonormal(rows: int, columns: int, seed: int) -> torch.Tensor:
    dense = np.random.default_rng(seed).normal(size=(rows, columns))
    return torch.from_numpy(np.linalg.qr(dense)[0])


def turned(size: int, k: int, angles: list[float], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two k-dimensional subspaces with these principal angles."""
    basis = orthonormal(size, 2 * k, seed)
    cosines, sines = (torch.tensor([f(a) for a in angles], dtype=torch.float64) for f in (math.cos, math.sin))
    mixed = orthonormal(k, k, seed + 1)
    return basis[:, :k], (basis[:, :k] * cosines + basis[:, k:] * sines) @ mixed


@pytest.mark.parametrize("smallest", [1e-8, 1e-6, 1e-3, 0.1])
def test_known_rotations_come_out(smallest: float) -> None:
    wanted = [smallest, 2 * smallest, math.pi / 5, math.pi / 2 - 1e-3]
    found = principal_angles(*turned(40, 4, wanted, 0))
    assert found == pytest.approx(sorted(wanted), rel=1e-6, abs=1e-14)


@given(st.integers(1, 6), st.integers(0, 500))
def test_angles_are_those_of_the_definition(k: int, seed: int) -> None:
    before, after = orthonormal(20, k, seed), orthonormal(20, k, seed + 1000)
    cosines = np.linalg.svd((before.T @ after).numpy(), compute_uv=False)
    assert principal_angles(before, after) == pytest.approx(np.arccos(cosines.clip(max=1)), abs=1e-7)
    assert principal_angles(after, before) == pytest.approx(principal_angles(before, after), abs=1e-9)


@pytest.mark.parametrize("rank", [20, 21])
def test_no_angle_where_the_subspace_is_everything(rank: int) -> None:
    dense = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 20)))
    factors = decompose(dense, Method())
    assert set(angle_figures(factors, factors, rank, 20).values()) == {None}


@given(st.integers(2, 20), st.integers(2, 20), st.integers(0, 500))
def test_shift_and_projection_are_those_of_the_definitions(rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(rows, columns))
    update = 1e-3 * rng.normal(size=(rows, columns))
    u, s, vh = np.linalg.svd(before, full_matrices=False)
    after = np.linalg.svd(before + update, compute_uv=False)
    shift = spectral_shift(s.astype(np.float64), after.astype(np.float64))
    assert shift == pytest.approx(np.sqrt(((after - s) ** 2).sum()) / np.sqrt((s**2).sum()))
    factors = decompose(torch.from_numpy(before), Method())
    found = projection_figures(factors, torch.from_numpy(update))
    for share in (0.01, 0.05, 0.10, 0.20):
        k = max(1, int(share * min(rows, columns)))
        projected = u[:, :k] @ u[:, :k].T @ update @ vh[:k].T @ vh[:k]
        ratio = (projected**2).sum() / (update**2).sum()
        assert found[f"projection_{share:.2f}"] == pytest.approx(ratio)
        assert found[f"projection_lift_{share:.2f}"] == pytest.approx(ratio / (k * k / (rows * columns)))


def test_nothing_has_no_ratio() -> None:
    dense = torch.ones(3, 3, dtype=torch.float64)
    assert projection_ratio(decompose(dense, Method()), torch.zeros_like(dense), 1) is None
    assert spectral_shift(np.zeros(3), np.ones(3)) is None


def test_similarity_is_one_for_the_same_space_and_zero_for_orthogonal_ones() -> None:
    basis = orthonormal(64, 32, 0)
    same = basis[:, :16] @ orthonormal(16, 16, 5)
    assert subspace_similarity(basis[:, :16], same) == pytest.approx(1)
    assert subspace_similarity(basis[:, :16], basis[:, 16:]) == pytest.approx(0, abs=1e-20)


def test_random_range_finding_agrees_with_the_exact_decomposition() -> None:
    values = np.geomspace(10, 1e-3, 96)
    dense = orthonormal(160, 96, 0) * torch.from_numpy(values) @ orthonormal(96, 96, 1).mT
    exact, near = decompose(dense, Method()), decompose(dense, Method(exact_up_to=64, q=32, niter=4))
    assert near.s.numel() == 32
    assert near.values == pytest.approx(exact.values[:32], rel=1e-6)
    assert singular_values(dense, Method(exact_up_to=64, q=32, niter=4)) == pytest.approx(near.values, rel=1e-12)
    for one, other in ((exact.u, near.u), (exact.v, near.v)):
        assert principal_angles(one[:, :8], other[:, :8]).max() < 1e-6


@pytest.mark.parametrize("gap", [1.0, 1.001, 1.5])
def test_the_spectral_norm_of_a_large_matrix_is_within_its_tolerance(gap: float) -> None:
    # A flat spectrum: random range finding alone is some percent too low.
    values = np.full(200, 1.0)
    values[0] = gap
    dense = orthonormal(300, 200, 3) * torch.from_numpy(values) @ orthonormal(200, 200, 4).mT
    dense += 0.3 * torch.from_numpy(np.random.default_rng(0).normal(size=(300, 200))) / 10
    method = Method(exact_up_to=64, q=8, niter=0)
    truth = np.linalg.norm(dense.numpy(), 2)
    assert decompose(dense, method).values[0] < truth * 0.99
    assert singular_values(dense, method)[0] == pytest.approx(truth, rel=TOLERANCE)

"""Masks of principal and small weights against sorting, and the constants of the presets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.angles import Method, decompose
from maskreg.analysis.concentration import count_of
from maskreg.analysis.coverage import PRESETS, coverage_of, highest, lowest_magnitudes, principal_scores


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1000), st.floats(0, 1))
def test_masks_are_the_first_of_a_stable_sort(rows: int, columns: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    # Few distinct values, so that ties decide; signs must not.
    codes = rng.integers(0, 6, (rows, columns)).astype(np.uint16) | rng.choice([0, 0x8000], (rows, columns))
    codes = codes.astype(np.uint16)
    count = count_of(share, codes.size)
    order = np.argsort((codes & 0x7FFF).reshape(-1), kind="stable")
    wanted = np.zeros(codes.size, bool)
    wanted[order[:count]] = True
    assert np.array_equal(lowest_magnitudes(codes, count).reshape(-1), wanted)
    scores = rng.integers(0, 5, (rows, columns)).astype(np.float64)
    wanted = np.zeros(codes.size, bool)
    wanted[np.argsort(-scores.reshape(-1), kind="stable")[:count]] = True
    assert np.array_equal(highest(scores, count).reshape(-1), wanted)


def test_scores_are_those_of_the_truncated_matrix() -> None:
    dense = np.random.default_rng(0).normal(size=(15, 9))
    u, s, vh = np.linalg.svd(dense, full_matrices=False)
    found = principal_scores(decompose(torch.from_numpy(dense), Method()), 3, torch.float64)
    assert found == pytest.approx(np.abs(u[:, :3] * s[:3] @ vh[:3]))


@given(st.integers(1, 80), st.integers(0, 1000))
def test_coverage_counts_coordinates(numel: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen, moved = rng.random((2, numel)) < 0.4
    found = coverage_of(chosen, moved)
    both = sum(1 for a, b in zip(chosen, moved, strict=True) if a and b)
    assert found == (both / moved.sum() if moved.any() else None)
    rearranged = rng.permutation(numel)
    assert coverage_of(chosen[rearranged], moved[rearranged]) == found
    assert coverage_of(np.ones(numel, bool), moved) in (1.0, None)


def test_the_presets_have_the_constants_of_the_papers() -> None:
    dssu, geo = PRESETS["dssu"], PRESETS["geo"]
    assert dssu.alphas == (0.01, 0.05, 0.10, 0.20)
    assert dssu.thresholds == ("exact", "abs:1e-05")
    assert (dssu.dtype, dssu.max_side, dssu.roles) == ("float32", 4096, ())
    # The rank is the same share as alpha, at least one.
    assert [dssu.rank_for(a, 256) for a in dssu.alphas] == [2, 12, 25, 51]
    assert dssu.rank_for(0.01, 50) == 1
    assert (geo.rank, geo.alphas, geo.dtype, geo.thresholds) == (64, (0.30, 0.50), "float64", ("rel:0.001",))
    assert geo.roles == ("attention", "ffn")
    assert geo.applies("ffn", 9000)
    assert not geo.applies("embedding", 9)
    assert not dssu.applies("ffn", 5120)
    assert set(geo.to_json()) >= {"alphas", "rank", "dtype", "thresholds", "ties", "aggregation", "source"}

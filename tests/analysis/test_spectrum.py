"""Rank figures against their definitions written out, and what does not change them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.spectrum import TOLERANCES, TOP, TOP_PERCENT, figures, gap_figures, is_merged

sizes = st.integers(1, 30)


def matrix(rows: int, columns: int, seed: int, rank: int | None = None) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if rank is None:
        return rng.normal(size=(rows, columns))
    return rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))


def spectrum(of: np.ndarray) -> np.ndarray:
    return np.linalg.svd(of, compute_uv=False)


@given(sizes, sizes, st.integers(0, 1000))
def test_every_figure_is_what_its_definition_says(rows: int, columns: int, seed: int) -> None:
    dense = matrix(rows, columns, seed)
    values, size = spectrum(dense), min(rows, columns)
    found = figures(values, float((dense**2).sum()), size)
    squares = [s * s for s in values]
    assert found["stable_rank"] == pytest.approx((dense**2).sum() / np.linalg.norm(dense, 2) ** 2)
    for k in TOP:
        name = f"energy_top_{k}"
        if k > size:
            assert found[name] is None
        else:
            assert found[name] == pytest.approx(sum(squares[:k]) / sum(squares))
    for percent in TOP_PERCENT:
        k = max(1, math.ceil(size * percent / 100))
        assert found[f"energy_top_{percent}pct"] == pytest.approx(sum(squares[:k]) / sum(squares))
    shares = [s / sum(values) for s in values]
    assert found["effective_rank"] == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares if p > 0)))
    for tolerance in TOLERANCES:
        count = sum(s > tolerance * values[0] for s in values)
        assert found[f"numerical_rank_{tolerance:.0e}"] == pytest.approx(count / size)
    smallest = next(k for k in range(1, size + 1) if sum(squares[:k]) >= 0.99 * sum(squares) * (1 - 1e-12))
    assert found["rank_99"] == smallest
    if size >= 10:
        mean = sum(math.log(values[i] / values[9]) for i in range(9)) / 9
        assert found["hill"] == pytest.approx(1 / mean)
    else:
        assert found["hill"] is None


def test_a_part_of_a_spectrum_gives_only_what_a_part_can() -> None:
    assert set(figures(np.zeros(12), 0.0, 12).values()) == {None}
    dense = matrix(60, 50, 3)
    energy = float((dense**2).sum())
    part, whole = figures(spectrum(dense)[:16], energy, 50), figures(spectrum(dense), energy, 50)
    for name in ("stable_rank", "energy_top_16", "energy_top_10pct", "hill"):
        assert part[name] == whole[name]
    for name in ("energy_top_32", "effective_rank", "rank_99", "numerical_rank_1e-04"):
        assert part[name] is None
        assert whole[name] is not None


def test_a_step_is_found_where_it_is() -> None:
    values = np.concatenate([np.linspace(9, 8, 16), np.linspace(2, 1, 48)])
    energy = float((values**2).sum())
    found = gap_figures(values, energy)
    assert found["step"] == pytest.approx(4)
    assert found["step_rank"] == 16
    assert found["step_energy"] == pytest.approx((values[:16] ** 2).sum() / energy)
    assert is_merged(found, {"energy_top_16": 0.2})
    assert not is_merged(found, {"energy_top_16": 0.6})


def test_no_step_is_no_suspicion() -> None:
    smooth = np.geomspace(10, 0.1, 128)
    assert not is_merged(gap_figures(smooth, float((smooth**2).sum())), {})
    # A single leading direction is what every training run has.
    spiked = np.concatenate([[50.0], np.linspace(2, 1, 127)])
    assert not is_merged(gap_figures(spiked, float((spiked**2).sum())), {})
    assert not is_merged(gap_figures(np.ones(4), 4.0), {})

"""One matrix: what chance gives, and choices that make no sense."""

from __future__ import annotations

import numpy as np
import torch

from maskreg.analysis.angles import Method
from maskreg.analysis.coverage import PRESETS
from maskreg.analysis.matrix import METRICS, AnalysisSpec, Matrix, rounded


def ask(*presets: str, exact_up_to: int = 4096) -> AnalysisSpec:
    method = Method(exact_up_to=exact_up_to, q=8)
    return AnalysisSpec(frozenset(METRICS), (4,), tuple(PRESETS[name] for name in presets), method, 0)


def matrix(rows: int, columns: int, question: AnalysisSpec, role: str = "ffn") -> Matrix:
    values = np.random.default_rng(0).normal(0, 0.02, (rows, columns)).astype(np.float32)
    codes = rounded(values)
    numbers = (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return Matrix(role, codes, torch.from_numpy(numbers), question)


def test_chance_is_the_share_of_the_mask_and_k_squared_over_mn() -> None:
    chance = matrix(100, 40, ask("dssu")).chance()
    assert chance["low_dssu_0.05@exact"] == chance["principal_dssu_0.05@abs:1e-05"] == 0.05
    assert chance["projection_0.10"] == 16 / 4000
    assert chance["projection_lift_0.10"] == 1
    not_low = chance["principal_not_low_dssu_0.20@exact"]
    assert not_low is not None
    assert 0.1 < not_low < 0.2


def test_no_principal_mask_from_every_direction_or_from_more_than_are_known() -> None:
    assert {name.split("_")[0] for name in matrix(16, 20, ask("small")).selections} == {"low"}
    assert {name.split("_")[0] for name in matrix(17, 20, ask("small")).selections} == {"low", "principal"}
    # Eight directions were kept of a large matrix, and sixteen are wanted.
    assert {name.split("_")[0] for name in matrix(64, 80, ask("small", exact_up_to=32)).selections} == {"low"}

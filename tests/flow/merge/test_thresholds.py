"""Thresholds: the m-th largest size by counting; zeros, of which an update is mostly made, are never gathered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maskreg.flow.merge import sweeps
from maskreg.flow.merge.methods.base import Threshold
from maskreg.flow.merge.thresholds import EVERYTHING, LOWER, Search, codes_inside, count_lower
from tests.checkpoints import bf16, moved
from tests.flow.making import BLOCK
from tests.flow.merge.test_checkpoint import artifacts_of, merged

UPDATE = np.array([0, 1e-42, -0.0, 3, 0, -1e-41, 0], np.float32)
"""Four zeros and two sizes whose upper 15 bits are zero's."""


def test_a_threshold_among_the_smallest_sizes() -> None:
    inside = codes_inside(UPDATE, 0)
    assert inside.view(np.float32).tolist() == pytest.approx([1e-42, 1e-41], rel=1e-3)
    counts = np.zeros(LOWER, np.int64)
    count_lower(UPDATE, 0, counts)
    for missing, code in ((1, inside.max()), (2, inside.min())):
        counted, exact = Search(0, missing), Search(0, missing)
        counted.narrow(counts)
        exact.narrow_to([inside])
        assert counted == exact
        assert exact.threshold == Threshold(int(code), EVERYTHING.end)


@pytest.mark.parametrize("missing", [3, 4, 6])
def test_a_threshold_among_zeros_has_all_of_them_above_it(missing: int) -> None:
    inside, counts = codes_inside(UPDATE, 0), np.zeros(LOWER, np.int64)
    count_lower(UPDATE, 0, counts)
    counted, exact = Search(0, missing), Search(0, missing)
    counted.narrow(counts)
    exact.narrow_to([inside])
    assert counted.found == exact.found == EVERYTHING


@pytest.mark.parametrize("numel", [BLOCK // 2, BLOCK + 999])
def test_an_update_of_mostly_zeros_needs_no_list_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numel: int
) -> None:
    source = {"w.weight": bf16((numel,), 1)}
    target = {"w.weight": moved(source["w.weight"], 0.05, 2)}
    checkpoint, artifacts = artifacts_of(tmp_path, source, [target])
    listed: list[int] = []

    def positions(update: np.ndarray, code: int) -> np.ndarray:
        listed.append(code)
        return np.empty(0, np.int64)

    monkeypatch.setattr(sweeps, "positions_of", positions)
    with merged(checkpoint, artifacts, "ties-per-tensor", density=0.5) as model:
        values = model.read("w.weight", 0, numel)
    assert not listed
    assert np.array_equal(values, target["w.weight"][1].reshape(-1))

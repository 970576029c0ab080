"""Thresholds: the m-th largest size by counting; zeros, of which an update is mostly made, are never gathered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maskreg.flow.merge import sweeps
from maskreg.flow.merge.methods.base import Threshold
from maskreg.flow.merge.sweeps import EVERYTHING, LOWER, Search, count_lower
from tests.checkpoints import bf16, moved
from tests.flow.making import BLOCK
from tests.flow.merge.test_checkpoint import artifacts_of, merged

UPDATE = np.array([0, 1e-42, -0.0, 3, 0, -1e-41, 0], np.float32)
"""Four zeros and two sizes whose upper 15 bits are zero's."""


@pytest.mark.parametrize(("missing", "size"), [(1, 1e-41), (2, 1e-42), (3, 0), (4, 0), (6, 0)])
def test_a_threshold_among_zeros_has_all_of_them_above_it(missing: int, size: float) -> None:
    counts, search = np.zeros(LOWER, np.int64), Search(0, missing)
    count_lower(UPDATE, 0, counts)
    search.narrow(counts)
    code = int(np.float32(size).view(np.uint32))
    assert search.found == (Threshold(code, EVERYTHING.end) if size else EVERYTHING)


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

"""Many matrices put together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maskreg.analysis.aggregate import MatrixRow, TensorRow, grouped, summarized
from maskreg.document import checked


def row(name: str, role: str, numel: int, moved: int, *values: float | None, **changes: Any) -> TensorRow:
    matrices = tuple(
        MatrixRow({"nss": v, "low_x_0.10@exact": v}, {"nss": 1.0, "low_x_0.10@exact": 0.5}, {}, {"exact": moved})
        for v in values
    )
    given: dict[str, Any] = {
        "null_moved": {"exact": moved // 2},
        "energies": (4.0 * numel, 1.0 * moved, 2.0 * moved),
        "top_energies": ({"concentration_1pct": 0.5 * moved}, {"concentration_1pct": 0.4 * moved}),
        "scale": 3,
        "matrices": matrices,
    }
    return TensorRow(name, role, "0", (numel,), numel, {"exact": moved}, **{**given, **changes})


def test_means_medians_and_weights() -> None:
    found = summarized([row("a", "ffn", 100, 10, 0.2), row("b", "ffn", 300, 30, 0.4), row("c", "norm", 100, 0)])
    low = found["figures"]["low_x_0.10@exact"]
    assert low["mean"] == pytest.approx(0.3)
    assert low["max"] == 0.4
    assert low["weighted"] == pytest.approx((0.2 * 10 + 0.4 * 30) / 40)
    assert low["null_weighted"] == pytest.approx(0.5)
    assert (low["matrices"], low["null_matrices"]) == (2, 2)
    assert "weighted" not in found["figures"]["nss"]
    assert found["sparsity"]["exact"] == {"value": 1 - 40 / 500, "null": 1 - 20 / 500}
    assert found["relative_norm"]["value"] == pytest.approx((40 / 2000) ** 0.5)
    assert found["relative_norm"]["null"] == pytest.approx((80 / 2000) ** 0.5)


def test_a_matrix_without_the_figure_counts_on_neither_side() -> None:
    found = summarized([row("a", "ffn", 100, 10, 0.2, None)])["figures"]["nss"]
    assert (found["matrices"], found["mean"], found["null_matrices"]) == (1, 0.2, 1)


def test_energy_of_a_group_beside_its_share_of_the_parameters() -> None:
    groups = grouped([row("a", "ffn", 100, 10), row("b", "ffn", 100, 20), row("c", "attention", 600, 30)], "role")
    assert groups["ffn"]["energy"] == {"value": 30.0, "null": 60.0}
    assert groups["ffn"]["param_share"] == 0.25
    assert groups["ffn"]["energy_share"] == {"value": 0.5, "null": 0.5}
    assert groups["ffn"]["energy_lift"] == {"value": 2.0, "null": 2.0}
    assert sum(group["energy_share"]["value"] for group in groups.values()) == 1
    still = grouped([row("a", "ffn", 100, 0, null_moved=None, energies=(4.0, 0.0, None), scale=None)], "role")["ffn"]
    assert still["energy_share"] == still["energy_lift"] == {"value": None, "null": None}


def test_concentration_is_pooled_by_energy() -> None:
    still = row("n", "norm", 100, 8, null_moved=None, energies=(400.0, 8.0, None), scale=None)
    found = summarized([row("a", "ffn", 100, 10), still])["concentration"]["concentration_1pct"]
    # Without a null the update itself stands in for it.
    assert found == {"value": (5 + 4) / 18, "null": (4 + 4) / (20 + 8)}


def test_a_row_survives_json() -> None:
    one = row("a", "ffn", 100, 10, 0.2, None, notes=("x",), merged=1)
    assert checked(TensorRow, json.loads(json.dumps(one.to_json())), "row") == one

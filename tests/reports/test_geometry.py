from __future__ import annotations

from typing import Any

import pytest

from maskreg.errors import FormatError
from maskreg.reports.geometry import Beside, Energy, Summary, geometry_of, trajectory_of
from tests.reports.conftest import analysis, run_of


def test_figures_of_an_analysis() -> None:
    found = geometry_of("a", analysis())
    assert found.figures["stable_rank"] == Summary(1.5 * 5.3, 1.5 * 65.3, 5.3, 65.3, None)
    assert found.figures["low_dssu_0.10@exact"].chance == 0.1
    # By number of directions, in any order in the document; shares of ranks are another matter.
    assert list(found.energies) == [1, 2, 4, 16, 64]
    assert list(found.layers) == ["2", "10"]
    assert found.energy == {"ffn": Energy(0.6, Beside(0.75, 0.5), Beside(1.25, None))}
    assert found.concentration == {"concentration_1pct": Beside(0.144, 0.158)}


def test_points_of_a_trajectory() -> None:
    found = trajectory_of(run_of("a", "b"))
    assert [point.name for point in found.checkpoints] == ["a", "b"]
    assert found.checkpoints[0].stable_rank is None
    assert (found.k, found.similarity_by_chance, found.by, len(found.groups)) == (16, 0.05, "tensor", 2)
    assert all(group.checkpoints == found.checkpoints for group in found.groups.values())


@pytest.mark.parametrize(
    "change",
    [
        {"total": {}},
        {"total": []},
        {"layers": None},
        {"notes": 3},
        {"roles": {"ffn": {"param_share": 0.5}}},
        {"total": {"figures": {"nss": {"median": "1", "null_median": None, "chance": None}}}},
        {"total": {"figures": {"nss": 3}}},
    ],
)
def test_what_is_no_analysis(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=r"^a "):
        geometry_of("a", {**analysis(), **change})


@pytest.mark.parametrize(
    "change", [{"k": None}, {"checkpoints": [{}]}, {"checkpoints": 1}, {"similarity_by_chance": True}]
)
def test_what_is_no_trajectory(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError) as raised:
        trajectory_of({**run_of("a"), **change})
    assert raised.value.facts["no_trajectory"]

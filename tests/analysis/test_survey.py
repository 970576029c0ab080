"""Figures of a survey: against the figures of one pair, and where a mask is empty."""

from __future__ import annotations

import numpy as np
import pytest

from maskreg.analysis.chance import Expectation
from maskreg.analysis.evidence import MATCHED
from maskreg.analysis.excess import excess_of
from maskreg.analysis.overlap import OverlapCounts, overlap_of
from maskreg.analysis.survey import Survey, expected_by_class

BOTH = np.array([[40, 20, 3, 0], [20, 30, 2, 0], [3, 2, 50, 0], [0, 0, 0, 0]])
EXPECTED = np.array([[0, 12, 20, 0], [12, 0, 15, 0], [20, 15, 0, 0], [0, 0, 0, 0.0]])


def survey() -> Survey:
    return Survey(("run:step-10", "run:step-9", "run:step-1", "run:none"), 100, BOTH, EXPECTED, MATCHED)


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 0), (0, 2), (1, 2)])
def test_figures_of_a_pair_are_those_of_a_comparison(a: int, b: int) -> None:
    counts = OverlapCounts(100, int(BOTH[a, a]), int(BOTH[b, b]), int(BOTH[a, b]))
    overlap = overlap_of(counts)
    assert survey().coverage[a, b] == overlap.coverage_a
    assert survey().jaccard[a, b] == overlap.jaccard
    assert survey().headrooms[a, b] == excess_of(counts, Expectation(float(EXPECTED[a, b]))).headroom


def test_what_is_undefined_is_null() -> None:
    assert np.isnan(survey().headrooms[3]).all()
    assert np.isnan(np.diagonal(survey().headrooms)).all()
    document = survey().to_json()
    assert document["headrooms"][3] == [None] * 4
    assert document["jaccard"][3] == [0.0, 0.0, 0.0, None]
    none = np.zeros((2, 2), np.int64)
    assert "No headroom is defined of 1 pair" in Survey(("a", "b"), 5, none, np.zeros((2, 2)), MATCHED).sentence


def test_masks_stand_in_the_order_of_a_run() -> None:
    assert [survey().names[mask] for mask in survey().order] == ["run:none", "run:step-1", "run:step-9", "run:step-10"]
    assert survey().nearest[:3].tolist() == [1, 0, 0]


def test_chance_by_class() -> None:
    sizes, members = np.array([[40, 0, 5], [30, 0, 10]]), np.array([100, 0, 10])
    assert expected_by_class(sizes, members)[0, 1] == pytest.approx(40 * 30 / 100 + 5 * 10 / 10)

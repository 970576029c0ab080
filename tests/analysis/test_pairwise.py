"""Answers about many pairs together, and the order of masks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.excess import Excess
from maskreg.analysis.pairwise import holm, order_of
from maskreg.analysis.verdict import LEVEL, Outcome, chance_of_error, outcome_of

CHANCES = st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=8)


@given(CHANCES)
def test_holm_rejects_what_its_steps_reject(chances: list[float | None]) -> None:
    """The procedure as it was published: from the smallest p on, stop at the first that is not small enough."""
    tested = len(chances)
    known = sorted((p, number) for number, p in enumerate(chances) if p is not None)
    rejected = set()
    for step, (p, number) in enumerate(known):
        if min(1, p * (tested - step)) > LEVEL:
            break
        rejected.add(number)
    corrected = holm(chances, tested)
    assert {number for number, p in enumerate(corrected) if p is not None and p <= LEVEL} == rejected
    assert all((p is None) == (given is None) for p, given in zip(corrected, chances, strict=True))


def test_similar_masks_are_neighbors() -> None:
    groups = np.array([0, 1, 2, 0, 1, 2, 0])
    similarity = np.where(groups[:, None] == groups, 0.8, 0.1) + np.where(groups[:, None] + groups == 1, 0.2, 0)
    np.fill_diagonal(similarity, np.nan)
    ordered = groups[list(order_of(similarity))].tolist()
    assert ordered in ([0, 0, 0, 1, 1, 2, 2], [2, 2, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 2, 2], [2, 2, 0, 0, 0, 1, 1])
    assert order_of(np.zeros((0, 0))) == ()
    assert sorted(order_of(np.full((4, 4), np.nan))) == [0, 1, 2, 3]


@given(st.floats(-1, 1), st.floats(1e-4, 0.2), st.floats(0, 0.1))
def test_an_answer_has_a_small_chance_of_error(headroom: float, error: float, smallest: float) -> None:
    ends = headroom - 1.96 * error, headroom + 1.96 * error
    excess = replace(
        Excess(expected=100.0, headroom=headroom, headroom_interval=ends), chance_of_more=1e-9, chance_of_less=1e-9
    )
    outcome = outcome_of(excess, smallest, 100)
    p = chance_of_error(excess, outcome, smallest)
    if outcome is Outcome.OPEN:
        assert p is None
    else:
        assert p is not None
        border = {Outcome.MORE: smallest, Outcome.LESS: -smallest}.get(outcome, math.copysign(smallest, headroom))
        z = abs(headroom - border) / error
        assert p <= LEVEL
        assert p == pytest.approx(max(math.erfc(z / math.sqrt(2)), LEVEL * 1e-5 if outcome is not Outcome.SAME else 0),
                                  rel=1e-3, abs=1e-12)  # fmt: skip

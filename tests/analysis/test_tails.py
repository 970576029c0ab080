"""Distributions of small overlaps, against enumeration."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from maskreg.analysis.excess import CERTAIN, distribution_of


def test_it_is_what_counting_all_masks_gives() -> None:
    tables = np.array([[2, 1, 2, 1], [0, 2, 1, 2]])
    result = distribution_of(tables)
    sets = []
    for neither, only_a, only_b, both in tables.tolist():
        n, a, b = neither + only_a + only_b + both, only_a + both, only_b + both
        sets.append([len({*range(a)} & {*other}) for other in combinations(range(n), b)])
    shared = Counter(map(sum, product(*sets)))
    total = sum(shared.values())
    for count in range(8):
        assert result.at_least(count) == pytest.approx(sum(v for k, v in shared.items() if k >= count) / total)
        assert result.at_most(count) == pytest.approx(sum(v for k, v in shared.items() if k <= count) / total)


def test_one_of_two_of_a_million() -> None:
    assert distribution_of(np.array([[999_997, 1, 2, 0]])).at_least(1) == pytest.approx(2e-6)
    many = distribution_of(np.array([[10**6 - 300, 150, 150, 0]]))
    assert many.at_least(1) == pytest.approx(1 - comb(10**6 - 150, 150) / comb(10**6, 150), rel=1e-9)


def test_nothing_shares_nothing() -> None:
    assert distribution_of(np.zeros((3, 4), np.int64)) is CERTAIN
    assert (CERTAIN.at_least(1), CERTAIN.at_most(0)) == (0, 1)

"""Baseline specs: which parameters each kind takes, and what the manifest records of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.errors import UsageError
from maskreg.mask import flip, pack, pack_spans, unpack
from maskreg.mask.baseline import STARTS, BaselineSpec, quota_of_model, quota_of_tensor
from maskreg.mask.draw import Quota
from maskreg.mask.rounding import CLASSES


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("random", {}, "unknown baseline 'random'"),
        ("random-global", {"density": 0.5}, "takes no density"),
        ("low-magnitude", {"seed": 0}, "takes no seed"),
        ("complement", {"rank": 4}, "takes no rank"),
        ("principal", {"alpha": 0.5}, "takes no alpha"),
        ("principal", {"rank": 0}, "rank 0"),
        ("safe", {"alpha": 1.5}, "alpha 1.5"),
        ("safe", {"alpha": float("nan")}, "alpha nan must be between 0 and 1"),
        ("subset", {}, "needs a density"),
        ("subset", {"density": -0.1}, "density -0.1"),
        ("subset", {"density": 0.0}, "density 0 is empty"),
        ("safe", {"alpha": 0.0}, "at alpha 0 every coordinate is safe"),
        ("safe", {"alpha": 1.0}, "at alpha 1 every coordinate is safe"),
        ("random-global", {"seed": -1}, "64 bits"),
        ("random-global", {"seed": 1 << 64}, "64 bits"),
    ],
)
def test_bad_parameters_are_refused(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        BaselineSpec.of(kind, **options)
    assert caught.value.hint


def test_a_subset_is_no_larger_than_its_mask() -> None:
    quota = quota_of_model(BaselineSpec.of("subset", density=0.25), 1000, 250)
    assert quota.sizes.tolist() == [0, 250]
    with pytest.raises(UsageError, match=r"(?m)\b260 .*\b250$"):
        quota_of_model(BaselineSpec.of("subset", density=0.26), 1000, 250)
    with pytest.raises(UsageError):
        quota_of_model(BaselineSpec.of("subset", density=0.26), 1000, 0)


@given(st.integers(1, 1 << 40), st.data())
def test_the_density_that_a_hint_names_can_be_had(numel: int, data: st.DataObject) -> None:
    nnz = data.draw(st.integers(1, numel))
    with pytest.raises(UsageError) as caught:
        quota_of_model(BaselineSpec.of("subset", density=1e-30), numel, nnz)
    options: Any = caught.value.facts["options"]
    size = quota_of_model(BaselineSpec.of("subset", density=options["density"]), numel, nnz).sizes[1]
    assert 0.9999 * nnz <= size <= nnz


@pytest.mark.parametrize("kind", STARTS)
def test_rounding_explains_no_more_than_what_is_finite(kind: str) -> None:
    spec = BaselineSpec.of(kind)
    members, moved = np.zeros(CLASSES, np.int64), np.zeros(CLASSES, np.int64)
    members[200], members[CLASSES - 1] = 10, 10
    for nnz, defined in ((0, False), (10, True), (11, False), (20, False)):
        moved[200], moved[CLASSES - 1] = min(nnz, 10), max(nnz - 10, 0)
        assert isinstance(quota_of_tensor(spec, members, moved), Quota) == defined


@given(st.lists(st.booleans(), max_size=300), st.lists(st.integers(0, 150), max_size=6))
def test_bits_in_spans_and_flipped(bits: list[bool], sizes: list[int]) -> None:
    moved = np.array(bits, np.bool_)
    spans = np.split(moved, np.minimum(np.cumsum([0, *sizes]), moved.size))
    assert np.array_equal(pack_spans(iter(spans)), pack(moved))
    flipped = flip(pack(moved), moved.size)
    assert np.array_equal(flipped, pack(~moved))
    assert np.array_equal(unpack(flipped, moved.size), ~moved)

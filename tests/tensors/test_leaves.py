from __future__ import annotations

import numpy as np
import pytest

from maskreg.digest import LEAF_NUMEL, leaf_hashes
from maskreg.errors import CorruptError, WrongCheckpointError
from maskreg.tensors.leaves import check_after, check_before, differing_leaf, leaf_count, leaves_between


def codes(numel: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    return np.random.default_rng(seed).integers(0, 1 << 16, numel).astype(np.uint16)


@pytest.mark.parametrize(("numel", "leaves"), [(0, 0), (1, 1), (LEAF_NUMEL, 1), (LEAF_NUMEL + 1, 2)])
def test_a_tensor_has_a_leaf_for_every_started_quarter_million(numel: int, leaves: int) -> None:
    assert leaf_count(numel) == leaves == len(leaf_hashes(codes(numel, 0)))


def test_the_leaves_of_a_span_are_those_of_its_elements() -> None:
    values = codes(3 * LEAF_NUMEL + 5, 1)
    whole = leaf_hashes(values)
    span = values[LEAF_NUMEL : 3 * LEAF_NUMEL]
    assert np.array_equal(leaves_between(whole, LEAF_NUMEL, 3 * LEAF_NUMEL), leaf_hashes(span))
    assert np.array_equal(leaves_between(whole, 3 * LEAF_NUMEL, values.size), leaf_hashes(values[3 * LEAF_NUMEL :]))


def test_the_first_differing_leaf_is_found() -> None:
    values = codes(3 * LEAF_NUMEL, 2)
    leaves = leaf_hashes(values)
    assert differing_leaf(values, leaves) is None
    values[LEAF_NUMEL + 9] ^= 1
    assert differing_leaf(values, leaves) == 1


def test_leaves_of_another_length_differ() -> None:
    values = codes(LEAF_NUMEL + 1, 2)
    assert differing_leaf(values, leaf_hashes(values)[:1]) == 1
    assert differing_leaf(values[:0], leaf_hashes(values)) == 0


def test_values_that_are_not_those_before_name_the_first_wrong_elements() -> None:
    values = codes(10, 5)
    with pytest.raises(WrongCheckpointError, match=r"tensor w: elements 4194304\.\.4194313 ") as caught:
        check_before("w", 1 << 22, values, leaf_hashes(codes(10, 6)))
    assert caught.value.tensor == "w"
    check_before("w", 1 << 22, values, leaf_hashes(values))


def test_a_result_that_is_not_as_recorded_is_damage() -> None:
    values = codes(10, 7)
    with pytest.raises(CorruptError, match="tensor w"):
        check_after("w", 0, values, leaf_hashes(codes(10, 8)))

from __future__ import annotations

import numpy as np
import pytest

from maskreg.codec import CODECS, get_codec
from maskreg.digest import LEAF_NUMEL, leaf_hashes
from maskreg.errors import CorruptError, WrongCheckpointError
from maskreg.tensors.leaves import check_after, differing_leaf, leaf_count, leaves_between
from maskreg.update.patch import patch_block


def codes(numel: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    return np.random.default_rng(seed).integers(0, 1 << 16, numel).astype(np.uint16)


@pytest.mark.parametrize(("numel", "leaves"), [(0, 0), (1, 1), (LEAF_NUMEL, 1), (LEAF_NUMEL + 1, 2)])
def test_a_tensor_has_a_leaf_for_every_started_quarter_million(numel: int, leaves: int) -> None:
    assert leaf_count(numel) == leaves == len(leaf_hashes(codes(numel, 0)))


def test_the_leaves_of_a_run_are_those_of_its_elements() -> None:
    values = codes(3 * LEAF_NUMEL + 5, 1)
    whole = leaf_hashes(values)
    run = values[LEAF_NUMEL : 3 * LEAF_NUMEL]
    assert np.array_equal(leaves_between(whole, LEAF_NUMEL, 3 * LEAF_NUMEL), leaf_hashes(run))
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


@pytest.mark.parametrize("name", sorted(CODECS))
def test_a_block_is_checked_decoded_and_checked(name: str) -> None:
    codec = get_codec(name)
    context, values = codes(1000, 3), codes(1000, 4)
    block = codec.encode(context, values)
    result = patch_block(
        "w", 0, context, lambda c: codec.decode(c, block), before=leaf_hashes(context), after=leaf_hashes(values)
    )
    assert np.array_equal(result, values)


def test_nothing_is_decoded_against_the_wrong_context() -> None:
    context = codes(10, 5)
    decoded = []

    def decode(given: np.ndarray[tuple[int], np.dtype[np.uint16]]) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
        decoded.append(given)
        return given

    with pytest.raises(WrongCheckpointError, match=r"tensor w: elements 4194304\.\.4194313 ") as caught:
        patch_block("w", 1 << 22, context, decode, before=leaf_hashes(codes(10, 6)), after=leaf_hashes(context))
    assert caught.value.tensor == "w"
    assert decoded == []


def test_a_result_that_is_not_as_recorded_is_damage() -> None:
    values = codes(10, 7)
    with pytest.raises(CorruptError, match="tensor w"):
        check_after("w", 0, values, leaf_hashes(codes(10, 8)))

"""Counting on packed bits, against dense masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskreg.analysis.comparison import Consensus
from maskreg.analysis.contingency import count_agreeing, count_both, count_classes, count_crossed, count_stripes
from maskreg.mask import overlap, pack
from maskreg.mask.rounding import classes_of

sizes = st.one_of(st.integers(0, 300), st.sampled_from([63, 64, 65, 127, 128, 4095, 4096, 4099, 9000]))


def drawn(numel: int, seed: int, masks: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.random(numel) < rng.random() for _ in range(masks)]


@given(sizes, st.integers(0, 1 << 32))
def test_counts_are_those_of_dense_masks(kernels: str, numel: int, seed: int) -> None:
    a, b = drawn(numel, seed)
    assert count_both(pack(a), pack(b)) == (a.sum(), b.sum(), (a & b).sum())
    assert count_both(pack(a), pack(b))[2] == overlap(pack(a), pack(b))


@given(sizes, st.integers(0, 1 << 32))
def test_classes_are_those_of_dense_masks(kernels: str, numel: int, seed: int) -> None:
    a, b = drawn(numel, seed)
    codes = np.random.default_rng(seed).integers(0, 1 << 16, numel).astype(np.uint16)
    expected = np.zeros((512, 4), np.int64)
    np.add.at(expected, (classes_of(codes), a + 2 * b), 1)
    assert (count_classes(pack(a), pack(b), codes) == expected).all()


@given(sizes, st.integers(1, 20), st.integers(0, 1 << 32))
def test_agreement_is_that_of_dense_masks(kernels: str, numel: int, masks: int, seed: int) -> None:
    found = drawn(numel, seed, masks)
    expected = np.bincount(np.sum(found, axis=0), minlength=masks + 1)
    assert (count_agreeing([pack(mask) for mask in found], numel) == expected).all()


@given(st.one_of(sizes, st.just(600_000)), st.integers(1, 6), st.integers(0, 1 << 32))
def test_combinations_are_those_of_dense_masks(numel: int, masks: int, seed: int) -> None:
    found = drawn(numel, seed, masks)
    which = np.sum([mask.astype(np.int64) << bit for bit, mask in enumerate(found)], axis=0)
    counts = count_crossed([pack(mask) for mask in found], numel)
    assert (counts == np.bincount(which, minlength=1 << masks)).all()
    # What is counted of more masks too follows from it.
    assert Consensus.of(counts, counts / 1, which=True).observed == tuple(
        count_agreeing([pack(mask) for mask in found], numel)
    )


def test_255_masks_can_agree(kernels: str) -> None:
    mask = pack(np.ones(5, bool))
    assert count_agreeing([mask] * 255, 5)[255] == 5
    with pytest.raises(ValueError, match="1 to 255"):
        count_agreeing([mask] * 256, 5)


@given(st.integers(1, 9), st.integers(1, 150), st.integers(0, 1 << 32), st.integers(0, 20))
def test_stripes_of_runs_add_up_to_those_of_the_matrix(
    kernels: str, height: int, width: int, seed: int, cut: int
) -> None:
    (mask,) = drawn(height * width, seed, 1)
    rows, columns = np.zeros(height, np.int64), np.zeros(width, np.int64)
    border = min(64 * cut, mask.size)
    for start, stop in ((0, border), (border, mask.size)):
        count_stripes(pack(mask[start:stop]), start, stop - start, rows, columns)
    assert (rows == mask.reshape(height, width).sum(1)).all()
    assert (columns == mask.reshape(height, width).sum(0)).all()


@pytest.mark.parametrize(("height", "width"), [(40, 4096), (33, 5000), (3, 20_000), (1000, 1), (300, 63), (15, 64)])
@pytest.mark.parametrize("cut", [slice(None), slice(64, None), slice(777, 778), slice(640, -11)])
def test_stripes_of_large_matrices(kernels: str, height: int, width: int, cut: slice) -> None:
    inside = np.zeros(height * width, np.bool_)
    inside[cut] = np.random.default_rng(width).random(inside[cut].size) < 0.9
    rows, columns = np.full(height, 7, np.int64), np.full(width, 9, np.int64)
    count_stripes(pack(inside[cut]), cut.start or 0, inside[cut].size, rows, columns)
    assert (rows - 7 == inside.reshape(height, width).sum(1)).all()
    assert (columns - 9 == inside.reshape(height, width).sum(0)).all()


def test_what_does_not_belong_together_is_refused() -> None:
    one, other = pack(np.ones(64, bool)), pack(np.ones(65, bool))
    with pytest.raises(ValueError, match=r"\b8\b.*\b16\b"):
        count_both(one, other)
    with pytest.raises(ValueError, match=r"\b65\b"):
        count_classes(one, one, np.zeros(65, np.uint16))
    for masks in ([], [one] * 7, [other]):
        with pytest.raises(ValueError, match="1 to 6"):
            count_crossed(masks, 64)
    with pytest.raises(ValueError, match=r"\[60, 124\).*\[4, 25\]"):
        count_stripes(one, 60, 64, np.zeros(4, np.int64), np.zeros(25, np.int64))

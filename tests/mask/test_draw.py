"""Drawing without replacement: the right ones, exactly as many, and each as likely as it should be."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.mask import pack, unpack
from maskreg.mask.draw import Draw, Hits, Quota, Seen, Span, Stream, Tally, Windows, count, mark, scan, second_words
from maskreg.mask.philox import TILE, WORDS, words_of
from maskreg.mask.rounding import CLASSES, classes_of
from tests.mask.reference import drawn as by_sorting

Tensors = Sequence[tuple[int, npt.NDArray[np.uint16]]]


def draw(
    quota: Quota, tensors: Tensors, seed: int = 1, *, run: int = 4096, deviations: float = 6.0, jobs: int = 1
) -> tuple[dict[int, npt.NDArray[np.bool_]], int]:
    """What is drawn of each tensor, and how often windows had to be widened."""
    runs = [(t, i, c[i : i + run]) for t, c in tensors for i in range(0, c.size, run)]
    for widened in range(64):
        windows = quota.draw(seed, widened, deviations)
        tally = Tally(quota, windows)
        with ThreadPoolExecutor(jobs) as pool:
            for seen in pool.map(partial(_look, windows), runs):
                tally.add(seen)
        completed = tally.settle()
        if completed is not None:
            break
    assert completed is not None
    bits: dict[int, list[npt.NDArray[np.bool_]]] = {t: [np.empty(0, np.bool_)] for t, _ in tensors}
    for t, i, classes in runs:
        packed = windows.packed(t, i, classes.size, completed.get(t, np.empty(0, np.int64)), classes)
        bits[t].append(unpack(packed, classes.size))
    return {t: np.concatenate(parts) for t, parts in bits.items()}, widened


def _look(windows: Draw, run: tuple[int, int, npt.NDArray[np.uint16]]) -> Seen:
    tensor, first, classes = run
    return windows.look(tensor, first, classes.size, classes)


def counted(tensors: Tensors, classes: int) -> npt.NDArray[np.int64]:
    return sum((np.bincount(c, minlength=classes) for _, c in tensors), np.zeros(classes, np.int64))


def as_set(bits: dict[int, npt.NDArray[np.bool_]]) -> set[tuple[int, int]]:
    return {(t, int(i)) for t, one in bits.items() for i in np.flatnonzero(one)}


@st.composite
def questions(pick: st.DrawFn) -> tuple[Tensors, list[float], int]:
    """A few small tensors of three classes, how the classes weigh, and how many are wanted."""
    rng = np.random.default_rng(pick(st.integers(0, 1 << 32)))
    sizes = pick(st.lists(st.integers(0, 150), min_size=1, max_size=3))
    tensors = [(int(rng.integers(1 << 63)) * 2 + 1, rng.integers(0, 3, n).astype(np.uint16)) for n in sizes]
    weights = pick(st.lists(st.sampled_from([0.0, 1e-6, 0.01, 0.3, 1.0]), min_size=3, max_size=3))
    most = int(counted(tensors, 3)[np.array(weights) > 0].sum())
    return tensors, weights, pick(st.integers(0, most))


@given(questions(), st.integers(0, (1 << 64) - 1), st.sampled_from([1e-3, 0.5, 6.0]))
@settings(max_examples=40)
def test_those_with_the_smallest_words_by_weight_are_drawn(
    kernels: str, question: tuple[Tensors, list[float], int], seed: int, deviations: float
) -> None:
    tensors, weights, wanted = question
    quota = Quota.of_all(counted(tensors, 3), np.array(weights), wanted)
    bits, _ = draw(quota, tensors, seed, deviations=deviations)
    assert as_set(bits) == by_sorting(seed, [(t, c.tolist()) for t, c in tensors], weights, wanted)


@given(questions(), st.integers(0, (1 << 64) - 1), st.sampled_from([1e-3, 6.0]), st.data())
@settings(max_examples=40)
def test_each_class_may_have_its_own_number(
    kernels: str, question: tuple[Tensors, list[float], int], seed: int, deviations: float, data: st.DataObject
) -> None:
    tensors, _, _ = question
    members = counted(tensors, 3)
    wanted = np.array([data.draw(st.integers(0, int(n))) for n in members])
    bits, _ = draw(Quota.by_class(members, wanted), tensors, seed, deviations=deviations)
    found = as_set(bits)
    assert len(found) == wanted.sum()
    for kind in range(3):
        weights = [float(k == kind) for k in range(3)]
        expected = by_sorting(seed, [(t, c.tolist()) for t, c in tensors], weights, int(wanted[kind]))
        assert {(t, i) for t, i in found if dict(tensors)[t][i] == kind} == expected


def test_threads_runs_and_the_order_of_tensors_do_not_matter(kernels: str) -> None:
    rng = np.random.default_rng(4)
    tensors = [(t, rng.integers(0, 4, n).astype(np.uint16)) for t, n in ((9, 70_000), (3, 12_345), (1 << 63, 50))]
    quota = Quota.by_class(counted(tensors, 4), np.array([5000, 100, 0, 20_000]))
    one, _ = draw(quota, tensors)
    other, _ = draw(quota, tensors[::-1], run=16_384, jobs=4)
    assert all(np.array_equal(one[t], other[t]) for t, _ in tensors)


def test_more_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="11 of 10"):
        Quota.of_all(np.array([10, 90]), np.array([1.0, 0.0]), 11).draw(0)


@pytest.mark.parametrize("size", range(7))
def test_equal_words_are_drawn_by_second_word_then_tensor_then_coordinate(size: int) -> None:
    quota = Quota.of_all(np.array([100]), np.ones(1), size)
    everything = np.array([0], np.uint32), np.array([WORDS], np.uint32)
    tally = Tally(quota, Draw(0, *everything, quota.groups))
    order = [(9, 5, 2), (7, 6, 2), (7, 8, 2), (9, 1, 2), (8, 3, 7)]
    for tensor in (9, 7, 8):
        own = [(place, second) for name, place, second in order if name == tensor]
        places, seconds = np.array(sorted(own)).T
        words = np.where(places == 5, 10, 20).astype(np.uint32)
        seen = Seen(
            tensor, np.zeros(1, np.int64), places, words, seconds.astype(np.uint32), np.zeros(len(own), np.uint16)
        )
        tally.add(seen)
    drawn = tally.settle()
    if size > len(order):
        assert drawn is None
        return
    assert drawn is not None
    assert {(t, i) for t, places in drawn.items() for i in places.tolist()} == {(t, i) for t, i, _ in order[:size]}


EDGES = [0, 1, 15, 16, 17, 63, 64, 65, 1023, 1025, 4095, 4096, 4097, 20_001]


@given(st.integers(0, 3000) | st.sampled_from(EDGES), st.integers(1, 512), st.integers(0, 1 << 32))
@settings(max_examples=40)
def test_counting_by_class(kernels: str, numel: int, kinds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes, moved = rng.integers(0, kinds, numel).astype(np.uint16), rng.random(numel) < 0.3
    members, found = np.full(kinds, 5, np.int64), np.full(kinds, 7, np.int64)
    count(classes, pack(moved), members, found)
    assert (members - 5).tolist() == np.bincount(classes, minlength=kinds).tolist()
    assert (found - 7).tolist() == np.bincount(classes[moved], minlength=kinds).tolist()


@pytest.mark.parametrize("numel", EDGES)
@pytest.mark.parametrize("kinds", [0, 1, 2, 512])
def test_scanning_and_marking_are_what_a_dense_comparison_gives(kernels: str, numel: int, kinds: int) -> None:
    rng = np.random.default_rng(numel + kinds)
    stream = Stream(*rng.integers(0, 1 << 63, 2).tolist())
    borders = np.sort(rng.integers(0, WORDS, (2, max(kinds, 1)), dtype=np.uint32), axis=0)
    borders[:, 0] = (0, WORDS) if kinds > 1 else borders[:, 0]
    classes = rng.integers(0, kinds, numel).astype(np.uint16) if kinds else None
    span = Span(3 * TILE, numel, classes)
    words, kind = words_of(*stream, span.first, numel), np.zeros(numel, np.uint16) if classes is None else classes
    low, high = borders[:, kind]
    inside = np.flatnonzero((words >= low) & (words < high))
    # Counted by class and all together; with too little room.
    below, together = np.full(max(kinds, 1), 5, np.int64), np.zeros(1, np.int64)
    hits, few = (Hits(np.zeros(room, np.int64), np.zeros(room, np.uint32)) for room in (numel, 3))
    assert scan(stream, span, Windows(*borders), below, hits) == inside.size
    assert scan(stream, span, Windows(*borders), together, few) == inside.size
    assert (below - 5).tolist() == np.bincount(kind[words < low], minlength=below.size).tolist()
    assert together == (words < low).sum()
    for found, room in ((hits, inside.size), (few, min(inside.size, 3))):
        assert np.array_equal(found.places[:room], inside[:room])
        assert np.array_equal(found.words[:room], words[inside[:room]])
    seconds = second_words(stream, inside + span.first)
    assert np.array_equal(seconds, words_of(*stream, span.first, numel, second=True)[inside])
    assert np.array_equal(mark(stream, span, borders[0]), pack(words < low))


def test_draws_are_the_same_forever(kernels: str) -> None:
    """Digests of published baselines depend on them."""
    codes = (np.arange(30_000) * 7919 % 65_536).astype(np.uint16)
    classes = classes_of(codes)
    members = np.bincount(classes, minlength=CLASSES)
    by_class, _ = draw(Quota.by_class(members, members // 3), [(77, classes)], 12_345)
    of_all, _ = draw(Quota.of_all(members, np.linspace(0, 1, CLASSES), 9000), [(1 << 63, classes)], (1 << 64) - 1)
    digests = [hashlib.sha256(pack(bits).tobytes()).hexdigest()[:16] for bits in (by_class[77], of_all[1 << 63])]
    assert digests == ["1e4b1f72927e3c17", "0fdc978fc442de09"]

"""Comparing many masks: every pair as if it were alone, read once, in bounded memory."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from maskreg.analysis.evidence import STRIPED
from maskreg.analysis.verdict import Outcome
from maskreg.artifact.reader import Artifact
from maskreg.artifact.tensors import Tensor
from maskreg.flow.overlap import counting, measure
from maskreg.flow.overlap.counting import pairs_at_once
from maskreg.flow.overlap.measure import MOST_WITH_GROUPS
from maskreg.update.verified import VerifiedSource
from tests.checkpoints import bf16
from tests.flow.making import compared
from tests.flow.overlap.test_measure import Bench, dense


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    tensors: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (40, 32),
        "model.layers.0.mlp.up_proj.weight": (48, 32),
    }
    tensors |= {"model.layers.1.self_attn.q_proj.bias": (96,), "model.norm.weight": (32,)}
    return Bench(
        tmp_path_factory.mktemp("many"), {name: bf16(shape, seed) for seed, (name, shape) in enumerate(tensors.items())}
    )


@pytest.fixture(scope="module")
def masks(bench: Bench) -> list[Artifact]:
    return [bench.random(fraction, seed) for seed, fraction in enumerate((0.5, 0.3, 0.2, 0.4, 0.05))]


@pytest.fixture(scope="module")
def alone(bench: Bench, masks: list[Artifact]) -> list[dict[str, Any]]:
    """Every pair as it is compared with nothing else."""
    pairs = (compared(pair, bench.source).pairs[0] for pair in combinations(masks, 2))
    return [pair.to_json() for pair in pairs]


def small_tiles(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Tiles of at most so many pairs, with any memory."""
    monkeypatch.setattr("maskreg.flow.overlap.counting.pairs_at_once", lambda *_: most)


@pytest.mark.parametrize(("most", "held"), [(100, 1 << 30), (4, 1 << 30), (4, 0), (1, 0)])
def test_every_pair_is_as_if_it_were_compared_alone(
    bench: Bench,
    masks: list[Artifact],
    alone: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    held: int,
) -> None:
    small_tiles(monkeypatch, most)
    monkeypatch.setattr(counting.SpanReader.__init__, "__defaults__", (held,))
    together = compared(masks, bench.source, stripes=True)
    # To the last digit: every figure of every group, with its interval.
    assert [pair.to_json() for pair in together.pairs] == alone
    observed = np.bincount(np.sum([dense(mask) for mask in masks], axis=0), minlength=6)
    assert together.consensus is not None
    assert together.consensus.observed == tuple(observed)
    which = np.sum([dense(mask).astype(int) << bit for bit, mask in enumerate(masks)], axis=0)
    numbers = {sum(1 << mask for mask in each.masks): each for each in together.intersections}
    assert [numbers[n].coordinates for n in range(1, 32)] == np.bincount(which, minlength=32)[1:].tolist()
    sizes = [each.coordinates for each in together.intersections]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(each.expected for each in together.intersections) == pytest.approx(sum(together.consensus.expected[1:]))
    for pair in together.pairs[:1]:
        shared = [each for each in together.intersections if {0, 1} <= set(each.masks)]
        assert sum(each.coordinates for each in shared) == pair.whole.counts.both
    assert [len(mask) for mask in together.stripes] == [len(together.stripes[0])] * 5 != [0] * 5


def test_without_the_source_too(masks: list[Artifact], monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [compared(pair).pairs[0].to_json() for pair in combinations(masks, 2)]
    small_tiles(monkeypatch, 4)
    monkeypatch.setattr("maskreg.flow.overlap.counting.BITS_NUMEL", 512)
    together = compared(masks)
    assert [pair.to_json() for pair in together.pairs] == alone
    assert together.matrix is not None
    assert together.matrix.null == STRIPED


@pytest.mark.parametrize("jobs", [1, 4])
def test_each_mask_and_the_source_are_read_once(
    bench: Bench, masks: list[Artifact], monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    reads: Counter[Any] = Counter()
    mask_bits, codes = Artifact.mask_bits, VerifiedSource.codes

    def counted_bits(self: Artifact, row: Tensor, start: int = 0, stop: int | None = None) -> Any:
        if stop:  # measuring also opens the array of each mask once
            reads[self.digest, row.name, start] += 1
        return mask_bits(self, row, start, stop)

    def counted_codes(self: VerifiedSource, name: str, start: int, stop: int) -> Any:
        reads[name, start] += 1
        return codes(self, name, start, stop)

    small_tiles(monkeypatch, 1)
    monkeypatch.setattr(Artifact, "mask_bits", counted_bits)
    monkeypatch.setattr(VerifiedSource, "codes", counted_codes)
    compared(masks, bench.source, jobs=jobs)
    tensors = sum(bits.size > 0 for _, bits in bench.tensors.values())
    assert len(reads) == tensors * (len(masks) + 1)
    assert set(reads.values()) == {1}


def test_the_figures_of_many_masks_are_kept_as_asked(
    bench: Bench, masks: list[Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compared(masks, bench.source).pairs[0].kept == ("role", "layer", "module", "tensor")
    monkeypatch.setattr(measure, "MOST_WITH_GROUPS", 4)
    few = compared(masks, bench.source, by="role").pairs[0].to_json()
    assert "ffn" in few["roles"]
    assert not {"layers", "modules", "tensors"} & few.keys()
    assert "roles" not in compared(masks, bench.source).pairs[0].to_json()
    assert MOST_WITH_GROUPS == 8


def test_the_start_is_each_masks_own(bench: Bench, masks: list[Artifact]) -> None:
    result = compared(masks[:3], bench.source, starts=["yes", "unknown", "unknown"])
    assert [pair.asked.start for pair in result.pairs] == ["yes", "yes", "unknown"]
    assert result.matrix is not None
    assert result.matrix.null == STRIPED
    assert [pair.start for pair in result.matrix.pairs] == ["yes", "yes", "unknown"]
    assert all(bool(pair.reason) == (pair.outcome is Outcome.OPEN) for pair in result.matrix.pairs)


def test_fewer_pairs_at_once_of_larger_tensors() -> None:
    def room_for(*shape: int) -> int:
        return pairs_at_once(Tensor("x", "ffn", source_shape=shape), 1 << 22, 4)

    assert room_for(512) > room_for(512, 512) > room_for(4096, 4096) > room_for(1 << 16, 1 << 16) >= 1
    assert pairs_at_once(Tensor("x", "ffn", source_shape=(1 << 16, 1 << 16)), 1 << 22, 18) == 1
    shape = 4096, 4096
    counters = 96 * 4 * sum(shape) * 4
    assert room_for(*shape) * counters <= counting.ROOM_BYTES

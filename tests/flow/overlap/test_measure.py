"""Comparing masks of artifacts: against dense masks, in every shape and edge, on real updates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskreg.analysis.comparison import Comparison, PairOverlap
from maskreg.analysis.evidence import BY_BOTH, BY_EXPONENT, MATCHED, NULLS, PER_TENSOR, ROUNDING, ROUNDING_A, ROUNDING_B
from maskreg.analysis.verdict import Outcome
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import CorruptError, PairMismatchError
from maskreg.flow.extract.extraction import extract
from maskreg.mask.rounding import classes_of
from maskreg.store.file import FileStore
from tests.checkpoints import Tensor, bf16, f16, llama_tensors, make_checkpoint, moved, widened
from tests.flow.making import compared
from tests.mask.reference import chances_by_rounding


class Bench:
    """A source and masks of it, in one store."""

    def __init__(self, folder: Path, source: Mapping[str, Tensor]) -> None:
        self.folder = folder
        self.tensors = dict(source)
        self.source = open_checkpoint(make_checkpoint(folder / "source", source))
        self._made = 0

    def mask(self, target: Mapping[str, Tensor], **options: Any) -> Artifact:
        """The mask of a target."""
        self._made += 1
        made = open_checkpoint(make_checkpoint(self.folder / f"target{self._made}", target))
        digest = extract(self.source, made, self.folder / "store", mask_only=True, **options).digest
        return Artifact.open(FileStore(self.folder / "store"), digest)

    def random(self, fraction: float, seed: int) -> Artifact:
        """The mask of a target in which so many coordinates moved; norms stay."""
        return self.mask(
            {
                name: tensor if "norm" in name else moved(tensor, fraction, seed=seed * 1000 + place)
                for place, (name, tensor) in enumerate(self.tensors.items())
            }
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, llama_tensors())


def dense(artifact: Artifact) -> np.ndarray:
    return np.concatenate([artifact.mask[name].to_bool().reshape(-1) for name in sorted(artifact.mask)])


def chance_of_each(kinds: np.ndarray, nnz: int) -> np.ndarray:
    """Chance of every coordinate to be in a mask of that size which rounding made."""
    if nnz in (0, kinds.size):
        return np.full(kinds.size, nnz / kinds.size)
    chances: np.ndarray = chances_by_rounding(np.bincount(kinds, minlength=512), nnz)[kinds]
    assert chances.sum() == pytest.approx(nnz)
    return chances


def only(found: Comparison) -> PairOverlap:
    (pair,) = found.pairs
    return pair


def test_figures_are_those_of_dense_masks(bench: Bench) -> None:
    one, other = bench.random(0.4, 1), bench.random(0.2, 2)
    pair = only(compared([one, other], bench.source))
    a, b = dense(one), dense(other)
    whole = pair.whole
    assert (whole.counts.numel, whole.counts.a, whole.counts.b) == (a.size, a.sum(), b.sum())
    assert whole.counts.both == (a & b).sum()
    assert whole.overlap.phi == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert pair.digests == (one.digest, other.digest)
    assert pair.notes == ()
    expected = dict.fromkeys((PER_TENSOR, MATCHED, ROUNDING, ROUNDING_A, ROUNDING_B), 0.0)
    tensor_alike = tensor_apart = 0.0
    sums = np.zeros((256, 4))
    for name, tensor in bench.tensors.items():
        codes = tensor[1].reshape(-1)
        x, y = (artifact.mask[name].to_bool().reshape(-1) for artifact in (one, other))
        if not codes.size:
            continue
        expected[PER_TENSOR] += x.sum() * y.sum() / codes.size
        for kind in np.unique(np.stack([codes >> 7 & 0xFF, codes & 0x7F == 0]), axis=1).T:
            here = (codes >> 7 & 0xFF == kind[0]) & ((codes & 0x7F == 0) == kind[1])
            expected[MATCHED] += x[here].sum() * y[here].sum() / here.sum()
        kinds = classes_of(codes)
        chances = [chance_of_each(kinds, int(mask.sum())) for mask in (x, y)]
        expected[ROUNDING] += (chances[0] * chances[1]).sum()
        expected[ROUNDING_A] += chances[0][y].sum()
        expected[ROUNDING_B] += chances[1][x].sum()
        for exponent in np.unique(codes >> 7 & 0xFF):
            here = codes >> 7 & 0xFF == exponent
            counts = np.array([(~x & ~y)[here].sum(), (x & ~y)[here].sum(), (~x & y)[here].sum(), (x & y)[here].sum()])
            sums[exponent] += counts
            tensor_alike += counts[0] * counts[3] / here.sum()
            tensor_apart += counts[1] * counts[2] / here.sum()
    for null, value in expected.items():
        assert whole.nulls[null].expected == pytest.approx(value)
    n = np.maximum(sums.sum(1), 1)
    alike, apart = sums[:, 0] * sums[:, 3] / n, sums[:, 1] * sums[:, 2] / n
    assert whole.mantel_haenszel[BY_EXPONENT] == pytest.approx(alike.sum() / apart.sum())
    assert whole.mantel_haenszel[BY_BOTH] == pytest.approx(tensor_alike / tensor_apart)


def test_any_number_of_threads_gives_the_same_figures(bench: Bench) -> None:
    masks = [bench.random(0.4, seed) for seed in range(3)]
    one, four = (compared(masks, bench.source, stripes=True, jobs=jobs).to_json() for jobs in (1, 4))
    assert one == four


def test_masks_of_nothing_and_of_everything(bench: Bench) -> None:
    nothing = bench.mask(bench.tensors)
    everything = bench.mask({name: (dtype, bits ^ np.uint16(1)) for name, (dtype, bits) in bench.tensors.items()})
    pair = only(compared([nothing, everything], bench.source))
    assert (pair.whole.overlap.lift, pair.whole.overlap.phi) == (None, None)
    assert pair.verdict.outcome is Outcome.OPEN
    for null in NULLS:
        assert (pair.whole.nulls[null].expected, pair.whole.nulls[null].sd) == (0, 0)
    some = only(compared([everything, bench.random(0.3, 1)], bench.source)).whole
    # A tensor that moved as a whole tells no scale, and counts as it is.
    assert some.nulls[ROUNDING].expected == pytest.approx(some.counts.b)


def test_different_rules_are_refused_unless_allowed(bench: Bench) -> None:
    target = {name: moved(tensor, 0.4) for name, tensor in bench.tensors.items()}
    masks = [bench.mask(target), bench.mask(target, rule="abs:1e-5")]
    with pytest.raises(PairMismatchError, match=r"abs:1e-0?5, exact") as raised:
        compared(masks, bench.source)
    assert raised.value.facts["options"] == {"allow_different": True}
    pair = only(compared(masks, bench.source, allow_different=True))
    assert pair.whole.nulls[ROUNDING_A].expected is not None
    assert "hides flips" in pair.whole.nulls[ROUNDING_B].reason
    assert "hides flips" in pair.whole.nulls[ROUNDING].reason
    assert any("hides flips" in note for note in pair.notes)
    assert any("different rules" in note for note in pair.notes)


def test_different_tensors_are_refused_unless_allowed(bench: Bench, tmp_path: Path) -> None:
    fewer = {name: tensor for name, tensor in bench.tensors.items() if "layers.1" not in name}
    other = Bench(tmp_path / "other", fewer)
    masks = [bench.random(0.3, 1), other.random(0.3, 1)]
    with pytest.raises(PairMismatchError, match=r"\b9 .*: model\.layers\.1\."):
        compared(masks)
    apart = Bench(tmp_path / "apart", {"a": bf16((9, 9)), "empty": bf16((0, 9))})
    with pytest.raises(PairMismatchError):
        compared([masks[0], apart.random(0.3, 1)], allow_different=True)
    nothing = Bench(tmp_path / "nothing", {"empty": bf16((0, 9))})
    with pytest.raises(PairMismatchError):
        compared([nothing.mask(nothing.tensors)] * 2)
    pair = only(compared(masks, bench.source, allow_different=True))
    assert set(pair.tensors) == {name for name, (_, bits) in fewer.items() if bits.size}
    assert pair.whole.nulls[MATCHED].expected is not None
    assert compared(masks[::-1], other.source, allow_different=True).pairs[0].scope == pair.scope


def test_tied_weights_pair_by_any_of_their_names(tmp_path: Path) -> None:
    embedding = bf16((40, 16), 1)
    tied = {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding}
    bench = Bench(tmp_path, tied)
    after = moved(embedding, 0.4)
    one = bench.mask({"model.embed_tokens.weight": after, "lm_head.weight": after})
    two = bench.mask(
        {"model.embed_tokens.weight": moved(embedding, 0.2, 1), "lm_head.weight": moved(embedding, 0.2, 1)}
    )
    apart = bench.mask({"model.embed_tokens.weight": after, "lm_head.weight": moved(embedding, 0.2, 2)})
    assert [row.aliases for row in one.tensors] == [("lm_head.weight",)]
    assert only(compared([one, two], bench.source)).scope == {"tensors": 1, "coordinates": 640}
    for masks in ([one, apart], [apart, one]):
        with pytest.raises(PairMismatchError, match=r"lm_head\.weight"):
            compared(masks)
        assert only(compared(masks, allow_different=True)).scope["coordinates"] == 640


def test_a_wider_source_has_no_rounding_null(tmp_path: Path) -> None:
    source = {"a.weight": widened(bf16((64, 64), 1)), "b.weight": f16((64, 64), 2)}
    bench = Bench(tmp_path, source)
    target = {"a.weight": widened(moved(bf16((64, 64), 1), 0.3)), "b.weight": moved(source["b.weight"], 0.3)}
    pair = only(compared([bench.mask(target), bench.random(0.2, 5)], bench.source))
    assert pair.whole.nulls[MATCHED].expected is not None
    assert "F32" in pair.whole.nulls[ROUNDING].reason
    assert "F16" in pair.tensors["b.weight"].nulls[ROUNDING].reason
    assert any(pair.whole.nulls[ROUNDING].reason in note for note in pair.notes)


def test_a_mask_that_is_not_as_its_table_says_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = [bench.random(0.3, 1), bench.random(0.3, 2)]
    read = Artifact.mask_bits

    def with_a_flip(self: Artifact, row: Any, start: int = 0, stop: int | None = None) -> np.ndarray:
        bits = read(self, row, start, stop).copy()
        if self is masks[1] and row.name == "lm_head.weight" and bits.size:
            bits[3] ^= 1
        return bits

    monkeypatch.setattr(Artifact, "mask_bits", with_a_flip)
    for source in (None, bench.source):
        with pytest.raises(CorruptError, match=r"lm_head\.weight"):
            compared(masks, source)

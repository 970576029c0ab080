"""A survey of masks: each pair as a comparison counts it, however the tensors are cut."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from maskreg.analysis.evidence import MATCHED, PER_TENSOR
from maskreg.artifact.reader import Artifact
from maskreg.errors import UsageError
from maskreg.flow.overlap import survey as module
from maskreg.flow.overlap.measure import measure_overlap
from maskreg.flow.overlap.survey import survey_overlaps
from tests.checkpoints import bf16
from tests.flow.overlap.test_measure import Bench


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The first tensor has three leaves."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (600, 1024),
        "model.layers.0.mlp.up_proj.weight": (48, 32),
        "model.norm.weight": (32,),
    }
    source = {name: bf16(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    return Bench(tmp_path_factory.mktemp("survey"), source)


@pytest.fixture(scope="module")
def masks(bench: Bench) -> list[Artifact]:
    return [bench.random(fraction, seed) for seed, fraction in enumerate((0.5, 0.3, 0.2, 0.4, 0.05))]


@pytest.mark.parametrize("with_source", [True, False])
@pytest.mark.parametrize("span_bytes", [1, module.SPAN_BYTES])
def test_every_pair_is_counted_as_a_comparison_does(
    bench: Bench, masks: list[Artifact], with_source: bool, span_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SPAN_BYTES", span_bytes)
    survey = survey_overlaps(masks, bench.source if with_source else None)
    assert survey.null == (MATCHED if with_source else PER_TENSOR)
    assert survey.numel == 600 * 1024 + 48 * 32 + 32
    assert survey.sizes.tolist() == [mask.manifest.totals.nnz for mask in masks]
    pairs = measure_overlap(masks[:3], bench.source if with_source else None).pairs
    for (a, b), pair in zip(combinations(range(3), 2), pairs, strict=True):
        assert survey.both[a, b] == survey.both[b, a] == pair.whole.counts.both
        assert survey.expected[a, b] == pytest.approx(pair.whole.nulls[survey.null].expected, rel=1e-12)
        assert survey.headrooms[a, b] == pytest.approx(pair.whole.nulls[survey.null].headroom, rel=1e-9)


def test_how_many_masks(masks: list[Artifact]) -> None:
    with pytest.raises(UsageError, match=r"2 to 1,000 masks can be counted together, not 1$"):
        survey_overlaps(masks[:1])
    with pytest.raises(UsageError, match="not 1,005"):
        survey_overlaps(masks * 201)


def test_more_masks_than_fit_into_a_byte(masks: list[Artifact]) -> None:
    few, many = survey_overlaps(masks), survey_overlaps(masks * 60)
    assert np.array_equal(many.both, np.tile(few.both, (60, 60)))
    assert np.allclose(many.expected, np.tile(few.expected, (60, 60)))

"""Pictures of a consensus against dense masks."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import maskreg.flow.overlap.consensus
from maskreg.artifact.reader import Artifact
from maskreg.checkpoint import open_checkpoint
from maskreg.errors import PairMismatchError
from maskreg.flow.overlap.consensus import picture_consensus
from tests.checkpoints import Tensor, bf16, make_checkpoint, moved
from tests.flow.making import extracted

NAME = "model.layers.13.self_attn.q_proj.weight"
SHAPES = {
    NAME: (24, 40),
    "model.layers.13.mlp.experts.up_proj": (2, 8, 16),
    "model.norm.weight": (12,),
    "model.empty.weight": (0, 4),
}


def runs(tmp_path: Path, count: int) -> tuple[list[dict[str, Tensor]], list[Artifact]]:
    source = {name: bf16(shape, seed) for seed, (name, shape) in enumerate(SHAPES.items())}
    models = [source]
    for seed in range(count):
        models.append({name: moved(tensor, 0.2 + 0.1 * seed, seed) for name, tensor in source.items()})
        # Three rows that every run moves.
        bits = models[-1][NAME][1]
        bits[:3] = source[NAME][1][:3] + 1
    paths = [make_checkpoint(tmp_path / str(number), model) for number, model in enumerate(models)]
    start = open_checkpoint(paths[0])
    return models, [extracted(tmp_path, start, open_checkpoint(path)) for path in paths[1:]]


@pytest.mark.parametrize("chunk", [1 << 25, 64])
def test_the_picture_of_a_matrix_is_of_sums_of_dense_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(maskreg.flow.overlap.consensus, "BITS_NUMEL", chunk)
    models, artifacts = runs(tmp_path, 3)
    (found,) = picture_consensus(artifacts)
    assert (found.name, found.shape, found.runs) == (NAME, SHAPES[NAME], (1, 1))
    masks = [model[NAME][1] != models[0][NAME][1] for model in models[1:]]
    consensus = np.mean(masks, axis=0)
    assert found.ratios == pytest.approx(consensus)
    assert list(found.consensus.observed) == [int((np.sum(masks, axis=0) == k).sum()) for k in range(4)]
    p = [mask.mean() for mask in masks]
    chances = [0.0] * 4
    for held in product((0, 1), repeat=3):
        chances[sum(held)] += np.prod([q if h else 1 - q for q, h in zip(p, held, strict=True)])
    assert list(found.consensus.expected) == pytest.approx([chance * 24 * 40 for chance in chances])
    single = sum(q * (1 - q) for q in p) / 3**2
    assert found.rows == pytest.approx(consensus.mean(1).var() / (single / 40))
    assert found.columns == pytest.approx(consensus.mean(0).var() / (single / 24))


def test_masks_of_different_sources_have_no_picture(tmp_path: Path) -> None:
    _, artifacts = runs(tmp_path, 2)
    back = extracted(tmp_path, open_checkpoint(tmp_path / "1"), open_checkpoint(tmp_path / "2"))
    with pytest.raises(PairMismatchError):
        picture_consensus([artifacts[0], back])

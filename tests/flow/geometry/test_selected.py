"""Selected tensors: a part of a fused matrix has the figures of that matrix stored alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskreg.checkpoint import Selection
from maskreg.flow.geometry.analysis import analysis_spec, analyze
from tests.checkpoints import Tensor, bf16, moved
from tests.flow.making import extracted, opened

ATTENTION = "model.layers.{}.self_attn.{}.weight"
QKV = {"q_proj": 24, "k_proj": 8, "v_proj": 8}
QKVO = Selection.parse(["qkvo"])


def alone(layers: int = 2) -> dict[str, Tensor]:
    tensors = {"model.embed_tokens.weight": bf16((40, 32), 9)}
    for layer in range(layers):
        for number, (name, rows) in enumerate(QKV.items()):
            tensors[ATTENTION.format(layer, name)] = bf16((rows, 32), 10 * layer + number)
        tensors[ATTENTION.format(layer, "o_proj")] = bf16((32, 24), 10 * layer + 5)
    return tensors


def fused(tensors: dict[str, Tensor], layers: int = 2) -> dict[str, Tensor]:
    """The same numbers, with q, k and v of every layer in one matrix."""
    joined = {name: tensor for name, tensor in tensors.items() if not any(part in name for part in QKV)}
    for layer in range(layers):
        parts = [tensors[ATTENTION.format(layer, name)][1] for name in QKV]
        joined[ATTENTION.format(layer, "qkv_proj")] = ("BF16", np.concatenate(parts))
    return joined


def measured(folder: Path, source: dict[str, Tensor], target: dict[str, Tensor], given: bool) -> dict[str, Any]:
    folder.mkdir()
    before, after = opened(folder, source, target)
    artifact = extracted(folder, before, after)
    spec = analysis_spec(ranks=(4,), presets=("small", "geo"), selection=QKVO)
    return dict(analyze(artifact, before, after if given else None, folder, spec).document)


@pytest.mark.parametrize("given", [True, False])
def test_a_part_of_a_fused_matrix_has_the_figures_of_that_matrix_alone(tmp_path: Path, given: bool) -> None:
    source = alone()
    target = {name: moved(tensor, 0.3, seed) for seed, (name, tensor) in enumerate(source.items())}
    split = measured(tmp_path / "split", source, target, given)
    joined = measured(tmp_path / "joined", fused(source), fused(target), given)
    rows = [{row["name"]: row for row in document["tensors"]} for document in (split, joined)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 8
    assert split["total"]["moved"] == joined["total"]["moved"]
    assert joined["recipe"]["selection"]["roles"] == ["q_proj", "k_proj", "v_proj", "o_proj"]
    assert f"{QKVO} alone: {split['total']['numel']:,} " in joined["notes"][0]

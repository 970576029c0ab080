"""Training from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import maskreg
from maskreg.errors import UsageError
from maskreg.result import plain
from tests.train.making import make_model, make_target, sums


@pytest.fixture
def setting(tmp_path: Path) -> dict[str, Any]:
    """A small source with a mask called toy, and the options of a short run."""
    torch.set_num_threads(1)
    source = make_model(tmp_path / "source", seed=1)
    maskreg.extract(source, make_target(source, tmp_path / "target"), "toy", family="tiny")
    data = sums(tmp_path / "data.jsonl")
    return {
        "recipe": "sft",
        "data": data,
        "out": tmp_path / "run",
        "batch_size": 4,
        "config": {"max_steps": 2, "learning_rate": 1e-3},
    }


def test_a_mask_is_trained_and_what_changed_is_named(setting: dict[str, Any]) -> None:
    for name in (None, "again:v1"):
        result = maskreg.retrain("toy", **setting, name=name)
        document = result.to_json()
        assert all(plain(getattr(result, key)) == value for key, value in document.items())
        assert (document["digest"] is None) == (document["ref"] is None) == (name is None)
        summary = json.loads((setting["out"] / "summary.json").read_text())
        assert summary == {key: document[key] for key in summary}
    assert maskreg.show("again:v1").card.to_json() == {"family": "tiny", "method": "sft"}
    artifact = maskreg.load("again:v1")
    assert artifact.manifest.totals.nnz == result.visible > 0
    assert (result.model / "config.json").exists()
    assert (str(result.ref), result.digest, result.was) == ("again:v1", artifact.digest, None)
    # Lineage says what the bits depend on.
    (environment,) = result.environments
    assert environment["after_step"] == 0
    assert environment["processes"] == environment["threads"] == 1
    assert environment["device"].startswith("cpu ")
    assert environment["versions"].keys() == {"maskreg", "torch", "transformers", "trl", "numpy"}
    assert artifact.manifest.recipe is not None
    assert artifact.manifest.recipe["environments"] == [environment]


def test_training_everything_needs_a_source(setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no mask to train") as caught:
        maskreg.retrain(**setting, control="full")
    assert caught.value.facts == {}

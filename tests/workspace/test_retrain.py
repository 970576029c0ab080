"""Training from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from maskreg_cli.next_step import next_step

import maskreg
from maskreg.errors import FormatError, UsageError
from maskreg.result import plain
from tests.train.making import make_model, make_target, sums


@pytest.fixture
def setting(tmp_path: Path) -> dict[str, Any]:
    """A small source with a mask called toy, and the options of a short run."""
    torch.set_num_threads(1)
    source = make_model(tmp_path / "source", seed=1)
    maskreg.extract(source, make_target(source, tmp_path / "target"), "toy", family="tiny")
    data = sums(tmp_path / "data.jsonl")
    return {"recipe": "sft", "data": data, "out": tmp_path / "run", "steps": 2, "batch_size": 4, "lr": 1e-3}


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
    del summary["visible"]
    (setting["out"] / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(FormatError, match=r"summary\.json: 'visible' is missing"):
        maskreg.retrain("toy", **setting)


def test_an_option_that_does_not_exist_is_named(setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="unknown option 'learning_rate'") as caught:
        maskreg.retrain("toy", **setting, learning_rate=1.0)
    assert "control_seed" in caught.value.hint
    assert not setting["out"].exists()


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("dtype", "int8", "dtype= one of: stored, float32"),
        ("steps", "2", "steps: a whole number, at least 1"),
        ("batch_size", 0, "batch_size: a whole number, at least 1"),
        ("save_every", 0, "save_every: a whole number, at least 1"),
        ("max_length", 1.5, "max_length: a whole number, at least 2"),
        ("seed", True, "seed: a whole number, at least 0"),
    ],
)
def test_an_option_that_cannot_have_a_value_is_named(
    setting: dict[str, Any], option: str, value: object, hint: str
) -> None:
    with pytest.raises(UsageError, match=f"{option} cannot be {value!r}") as caught:
        maskreg.retrain("toy", **setting | {option: value})
    assert next_step(caught.value) == hint
    assert not setting["out"].exists()


def test_a_learning_rate_that_fp32_cannot_hold_is_refused(setting: dict[str, Any]) -> None:
    for lr in (1e300, 3e38, 1e-60):
        with pytest.raises(UsageError, match="lr cannot be") as caught:
            maskreg.retrain("toy", **setting | {"lr": lr})
        assert caught.value.hint.startswith("lr: ")
        assert "3.4e38" in caught.value.hint
        assert not setting["out"].exists()


def test_training_everything_needs_a_source(setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="needs a source") as caught:
        maskreg.retrain(**setting, control="full")
    assert caught.value.facts["options"] == {"source": "PATH"}

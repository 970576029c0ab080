"""Runs that end in the middle, or after their last save."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import maskreg
from maskreg.errors import WorkerError
from tests.flow.making import stored
from tests.train.making import make_model, make_target, sums


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A mask called toy of a small source, and the options of a run on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "registry"))
    monkeypatch.setenv("MASKREG_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.chdir(tmp_path)
    source = make_model(tmp_path / "source", seed=1)
    maskreg.extract(source, make_target(source, tmp_path / "target"), "toy")
    (tmp_path / "length.py").write_text("def of(completions, **_):\n    return [float(len(c)) for c in completions]\n")
    yield {"source": source, "data": sums(tmp_path / "data.jsonl"), "out": tmp_path / "run", "batch_size": 4}
    torch.set_num_threads(before)


def test_a_run_that_was_killed_after_its_last_save_takes_no_step_more(setting: dict[str, Any]) -> None:
    config = {"max_steps": 4, "save_steps": 2, "learning_rate": 1e-3, "lr_scheduler_type": "constant"}
    reported: list[int] = []

    def run() -> list[int]:
        """The steps that are taken, for a result that is the same as before."""
        reported.clear()
        options: Any = {**setting, "config": config, "listener": lambda line: reported.append(line["step"])}
        result = maskreg.retrain("toy", recipe="sft", **options)
        outcomes.append((stored(result.model), result.last_loss, result.environments))
        assert outcomes[0] == outcomes[-1]
        shutil.rmtree(result.model)
        (setting["out"] / "summary.json").unlink()
        return reported

    outcomes: list[tuple[Any, ...]] = []
    assert run() == [1, 2, 3, 4]
    assert run() == []
    # As FSDP leaves it, whose shards have other names.
    (setting["out"] / "checkpoints" / "checkpoint-4" / "model.safetensors").unlink()
    assert run() == [3, 4]


@pytest.mark.parametrize("recipe", ["opd", "grpo"])
def test_sampling_runs_resume_and_stay_inside_the_mask(setting: dict[str, Any], recipe: str, tmp_path: Path) -> None:
    def stop(line: Mapping[str, Any]) -> None:
        if line["step"] == 5:
            raise WorkerError("stop")

    config: dict[str, Any] = {"max_steps": 8, "save_steps": 2, "learning_rate": 1e-3, "max_completion_length": 6}
    if recipe == "opd":
        options: dict[str, Any] = {"teacher": str(make_model(tmp_path / "teacher", seed=2))}
    else:
        options, config["num_generations"] = {"reward": "length:of"}, 2
    with pytest.raises(WorkerError, match="stop"):
        maskreg.retrain("toy", recipe=recipe, **setting, config=config, listener=stop, **options)
    assert not (setting["out"] / "model").exists()
    taken: list[int] = []
    done = maskreg.retrain(
        "toy", recipe=recipe, **setting, config=config, listener=lambda line: taken.append(line["step"]), **options
    )
    assert taken == [5, 6, 7, 8]
    assert done.outside_mask == 0 < done.visible

"""What is refused before anything is trained, and rewards that no step can follow."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

from maskreg.errors import DataError, FormatError, TryAgainError, UsageError
from maskreg.train.retrain.prepare import read_records
from maskreg.train.retrain.setup import RECIPES, RunSetup, arguments, calling, read_config
from tests.train.making import write_lines


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([{"messages": []}], FormatError),
        ([{"text": "a", "label": 1}, {"text": "b", "label": "two"}], DataError),
        ([{"text": "a", "label": [1]}, {"text": "b", "label": {"x": 2}}], DataError),
    ],
)
def test_records_that_trl_could_not_take(tmp_path: Path, records: list[dict[str, Any]], error: type[Exception]) -> None:
    path = write_lines(tmp_path / "data.jsonl", records)
    with pytest.raises(error, match=r"data\.jsonl") as caught:
        read_records(path, RECIPES["sft"])
    assert getattr(caught.value, "hint", "")


@pytest.mark.parametrize("error", [torch.distributed.DistNetworkError(), RuntimeError("[/gloo/pair.cc:553] closed")])
def test_a_process_that_another_has_left_does_not_blame_the_data(error: Exception) -> None:
    with pytest.raises(TryAgainError), calling("trl", "the data"):
        raise error


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("packing", "no"), ("weight_decay", "x"), ("logging_steps", None), ("warmup_steps", True),
        ("dataset_num_proc", 1.5), ("max_steps", 0), ("optim", "adafactor"), ("num_train_epochs", 1), ("seed", -1),
        ("warmup_step", 3), ("output_dir", "x"), ("run_name", date(2026, 1, 2)), ("learning_rate", "1e400"),
        ("max_length", 0), ("dataloader_num_workers", -1), ("optim_args", "eps=1"),
    ],
)  # fmt: skip
def test_keys_and_values_that_cannot_be_set(key: str, value: object) -> None:
    with pytest.raises(UsageError, match=key):
        read_config({key: value}, RECIPES["sft"])


@pytest.mark.parametrize("value", ["2026-13-45", "[" * 3000, "{a: 1", "!!python/name:os.system"])
def test_values_that_are_not_yaml(value: str) -> None:
    with pytest.raises(FormatError, match=r"^run_name=") as caught:
        read_config(f"run_name={value}", RECIPES["sft"])
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_values_of_the_right_type() -> None:
    given = {"packing": False, "bf16": None, "weight_decay": 1, "warmup_steps": 0.1, "lr_scheduler_type": "linear"}
    read = read_config({**given, "adam_epsilon": "1e-9"}, RECIPES["sft"])
    assert read.items() >= {**given, "adam_epsilon": 1e-9}.items()


def test_keys_come_from_files_and_pairs_of_which_the_last_wins(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("weight_decay: 1e-2\nmax_steps: 7\n")
    read = read_config((str(tmp_path / "own.yaml"), "max_steps=9", "learning_rate=1e-3"), RECIPES["sft"])
    assert read == {
        "max_steps": 9, "save_steps": 50, "learning_rate": 1e-3, "seed": 0, "optim": "adamw_torch",
        "weight_decay": 0.01,
    }  # fmt: skip


def test_a_batch_is_taken_in_equal_parts_by_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    setup = RunSetup("sft", "", "", "", batch_size=3, config=read_config({}, RECIPES["sft"]))
    with pytest.raises(UsageError, match=r"\b3 .*\b2 ") as caught:
        arguments(setup, tmp_path, save_every=1)
    assert caught.value.facts["options"] == {"batch_size": 4}


@pytest.mark.parametrize("wrong", [{"learning_rate": -1}, {"lr_scheduler_kwargs": {"x": 1}}, {"weight_decay": -1}])
def test_what_training_would_refuse_is_refused_before(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        arguments(RunSetup("sft", "", "", "", config=read_config(wrong, RECIPES["sft"])), tmp_path, save_every=1)

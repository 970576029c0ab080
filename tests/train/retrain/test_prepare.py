"""What is refused before anything is trained, and rewards that no step can follow."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from maskreg.errors import DataError, FormatError, UsageError
from maskreg.train.retrain.prepare import check_rewards, load_function, read_records
from maskreg.train.retrain.setup import RECIPES, read_config
from tests.train.making import write_lines

TOKENIZER = SimpleNamespace(chat_template="x")


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
        read_records(path, RECIPES["sft"], TOKENIZER)
    assert getattr(caught.value, "hint", "")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("packing", "no"), ("bf16", "yes"), ("weight_decay", "x"), ("logging_steps", None), ("warmup_steps", True),
        ("dataset_num_proc", 1.5), ("fsdp_config", "absent.json"),
    ],
)  # fmt: skip
def test_values_that_trl_would_take_though_they_mean_nothing(key: str, value: object) -> None:
    with pytest.raises(UsageError, match=key):
        read_config({key: value}, RECIPES["sft"])


def test_values_of_the_right_type(tmp_path: Path) -> None:
    (tmp_path / "fsdp.json").write_text("{}")
    given = {"packing": False, "bf16": None, "weight_decay": 1, "warmup_steps": 0.1, "lr_scheduler_type": "linear",
             "fsdp_config": str(tmp_path / "fsdp.json")}  # fmt: skip
    assert read_config({**given, "adam_epsilon": "1e-9"}, RECIPES["sft"]) == {**given, "adam_epsilon": 1e-9}


@pytest.mark.parametrize("reward", [float("nan"), np.float32("nan"), torch.tensor(torch.inf)])
def test_a_reward_that_is_no_finite_number(reward: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards_to_check.py").write_text("def given(rewards):\n    return rewards\n")
    called = load_function("rewards_to_check:given", check=check_rewards)
    for fine in ([1.0, None, 2], torch.ones(2), None):
        assert called(fine) is fine
    with pytest.raises(UsageError, match="completion 1"):
        called([0.5, reward])

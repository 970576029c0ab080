"""Saving a trained model; over several processes, in ``tests/flow/publish/sharding.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from maskreg.errors import NotFoundError, OutputExistsError, WrongCheckpointError
from maskreg.train import save_model
from tests.e2e.running import same_files
from tests.train.making import make_model


def test_a_model_is_saved_like_its_source_or_not_at_all(tmp_path: Path) -> None:
    source, out, other = make_model(tmp_path / "source", seed=1), tmp_path / "out", tmp_path / "other"
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    save_model(model, source, out)
    assert same_files(out, source)
    with pytest.raises(OutputExistsError):
        save_model(model, source, out)
    with pytest.raises(NotFoundError):
        save_model(model, tmp_path / "missing", other)
    with pytest.raises(WrongCheckpointError):
        save_model(torch.nn.Linear(2, 2), source, other)
    assert not other.exists()

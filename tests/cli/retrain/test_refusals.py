"""What ``maskreg retrain`` refuses, and what it leaves behind then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from tests.checkpoints import make_checkpoint
from tests.cli.conftest import Run
from tests.cli.retrain.conftest import Train
from tests.train.making import WORDS, make_model, sums


def test_a_folder_of_something_else_is_left_alone(train: Train, tmp_path: Path) -> None:
    done = train("--json").json
    told = train("-c", "learning_rate=0.5", "-c", "seed=4", status=73).err
    assert "learning_rate: 0.001 there, 0.5 now" in told
    assert "seed: 0 there, 4 now" in told
    again = train("-c", "save_steps=2")
    assert again.out == f"{done['model']}\n"
    moved = shutil.move(Path(done["model"]).parent, tmp_path / "moved")
    assert train("-o", moved).out == f"{moved}/model\n"


def test_what_python_and_trl_refuse_is_told(train: Train, tmp_path: Path) -> None:
    for options, words in (
        ("--recipe grpo --reward absent:mine", "No module named 'absent'"),
        ("-c lr_scheduler_type=steep", "steep is not a valid SchedulerType"),
    ):
        assert words in train(*options.split(), status=2).err
    assert not (tmp_path / "run").exists()


def test_checkpoints_that_do_not_belong_together(
    train: Train, teacher: Path, source: Path, tmp_path: Path, run: Run
) -> None:
    assert train("--source", teacher, "--json", status=65).json["error"]["code"] == "SOURCE_MISMATCH"
    words = make_model(tmp_path / "words", seed=2, words=[*WORDS[:-1], "?"])
    assert "tokenizers" in train("--teacher", words, recipe="opd", status=65).err
    (tmp_path / "bare").mkdir()
    for file in source.glob("model*"):
        (tmp_path / "bare" / file.name).write_bytes(file.read_bytes())
    assert str(tmp_path / "bare") in train("--source", tmp_path / "bare", status=65).err
    assert not (tmp_path / "run").exists()


def test_a_mask_without_coordinates_trains_nothing(train: Train, run: Run, source: Path, tmp_path: Path) -> None:
    run("extract", source, source, "--name", "same")
    run("baseline", "same", "--kind", "complement", "--name", "everything")
    for args in (["same"], ["same", "--control", "random-per-tensor"], ["everything", "--control", "complement"]):
        for more in ([], ["--dry-run"]):
            told = train(*args[1:], *more, ref=args[0], status=2).err
            assert " 0 of 16,096 " in told
    assert "--control full" in told
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_without_an_end(train: Train, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(source, other)
    config = json.loads((other / "tokenizer_config.json").read_text())
    (other / "tokenizer_config.json").write_text(json.dumps({**config, "eos_token": None}))
    assert "eos_token" in train("--source", other, status=65).err
    assert not (tmp_path / "run").exists()


def test_a_step_that_is_no_number_is_not_taken(train: Train, tmp_path: Path) -> None:
    (tmp_path / "steep.py").write_text("def loss(o, l, **_):\n    return (o.logits.float() * 0).sum().sqrt()\n")
    assert " nan" in train("--loss", "steep:loss", "-c", "save_steps=1", status=65).err
    assert not list((tmp_path / "run" / "checkpoints").glob("checkpoint-*"))
    train()  # nothing was saved, so that the next try needs no other folder


def test_a_configuration_of_another_model(train: Train, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(source, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "hidden_size": 16}))
    assert str(other) in train("--source", other, status=65).err


def test_one_file_is_no_checkpoint_to_train(run: Run, tmp_path: Path) -> None:
    whole = make_checkpoint(tmp_path / "one", {"w": ("BF16", np.zeros((2, 2), np.uint16))}) / "model.safetensors"
    data = sums(tmp_path / "data.jsonl")
    options = ["--control", "full", "--recipe", "sft", "--data", str(data), "-o", str(tmp_path / "run")]
    told = run("retrain", "--source", whole, *options, status=2).err
    assert "is a file" in told
    assert f"--source {whole.parent}" in told

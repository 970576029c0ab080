"""What ``maskreg retrain`` refuses, and what it leaves behind then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints import make_checkpoint
from tests.cli.conftest import Run
from tests.cli.retrain.conftest import Train
from tests.cli.terminal import answered
from tests.train.making import WORDS, make_model, sums, write_lines


def test_a_folder_of_something_else_is_left_alone(train: Train, tmp_path: Path) -> None:
    done = train("--json").json
    told = train("--lr", "0.5", "--seed", "4", status=73).err
    assert "lr: 0.001 there, 0.5 now" in told
    assert "seed: 0 there, 4 now" in told
    again = train("--save-every", "2")
    assert "is complete already" in again.err
    assert again.out == f"{done['model']}\n"
    moved = shutil.move(Path(done["model"]).parent, tmp_path / "moved")
    assert train("-o", moved).out == f"{moved}/model\n"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    assert "holds no run" in train("-o", tmp_path / "full", status=73).err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"prompt": "# 1+1=", "completion": "2"}\n{"prompt": \n', "data.jsonl:2: not a well-formed JSON document"),
        ('{"prompt": "# 1+1=", "completion": "2"}\n\n[1]\n', "data.jsonl:3: expected a JSON object"),
        ('{"prompt": "# 1+1="}\n', "data.jsonl:1: 'completion' is missing"),
        ('{"prompt": 3, "completion": "2"}\n', "data.jsonl:1: 'prompt' is int, not text"),
        ('{"prompt": "", "completion": "2"}\n', "data.jsonl:1: an empty prompt"),
        ('{"text": ""}\n', "nothing to train on"),
        ('{"messages": []}\n', "'messages' is not a list"),
        ('{"messages": [{"role": "user", "content": "1"}]}\n', "not the assistant's"),
        (json.dumps({"prompt": "1" * 70, "completion": "2"}) + "\n", "the prompt has 70 tokens, more than 63"),
        ("\n\n", "no records"),
    ],
)
def test_data_that_cannot_be_trained_on(train: Train, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "data.jsonl").write_text(text)
    assert words in train(status=65).err
    assert not (tmp_path / "run").exists()


def test_records_of_every_kind(train: Train, tmp_path: Path) -> None:
    said = [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"}]
    lines: list[dict[str, Any]] = [{"messages": said}, {"text": "# 1+2=3"}, {"prompt": "# 1+3=", "completion": "4"}]
    assert train("--data", write_lines(tmp_path / "mixed.jsonl", lines), "--json").json["last_loss"] > 0


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["--data", "absent.jsonl"], 66, "no such file"),
        (["--recipe", "dpo"], 2, "there is no recipe 'dpo'"),
        (["--recipe", "opd"], 2, "needs a teacher"),
        (["--control", "nonsense"], 2, "there is no control 'nonsense'"),
        (["--control", "subset"], 2, "give --control-density, such as 0.1"),
        (["--control", "complement", "--control-seed", "1"], 2, "takes no seed"),
        (["--control-seed", "1"], 2, "is for controls"),
        (["--lr", "nan"], 2, "'nan' is not a finite number"),
        (["--betas", "2", "0.9"], 2, "betas cannot be (2.0, 0.9)"),
        (["--clip", "nan"], 2, "'nan' is not a finite number"),
        (["--temperature", "inf"], 2, "'inf' is not a finite number"),
        (["--seed", str(1 << 64)], 2, "is not in the range 0 to 18446744073709551615"),
        (["--momentum", "0.9"], 2, "adamw has no momentum"),
        (["--teacher", "."], 2, "takes no teacher"),
        (["--recipe", ":mine"], 2, "not a module name"),
        (["--recipe", "../own:mine"], 2, "not a module name"),
        (["--max-length", "65"], 2, "64 tokens at most"),
        (["--warmup", "9"], 2, "warmup of 9 steps"),
        (["--loss", "full"], 2, "has no loss 'full'"),
        (["--gradients", "in-backward", "--clip", "1"], 2, "cannot clip"),
        (["--gradients", "in-backward", "--micro-batch-size", "1"], 2, "cannot accumulate"),
        (["--batch-size", "4", "--micro-batch-size", "5"], 2, "micro-batches of 5"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_questions_that_make_no_sense(train: Train, args: list[str], status: int, words: str, tmp_path: Path) -> None:
    assert words in train(*args, status=status).err
    assert not (tmp_path / "run").exists()


def test_a_shared_name_is_asked_about_before_training(
    train: Train, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("remote", "add", "team", tmp_path / "team")
    run("push", "toy")
    with monkeypatch.context() as patch:
        screen = answered(patch, "n\n")
        train("--name", "toy", status=1)
    assert "was pushed to a remote. If the new artifact differs, move it?" in screen.getvalue()
    assert not (tmp_path / "run").exists()


def test_checkpoints_that_do_not_belong_together(
    train: Train, teacher: Path, source: Path, tmp_path: Path, run: Run
) -> None:
    told = train("--source", teacher, status=65).err
    assert "elements 0..511 are not those the artifact was made from" in told
    words = make_model(tmp_path / "words", seed=2, words=[*WORDS[:-1], "?"])
    assert "tokenizers" in train("--teacher", words, recipe="opd", status=65).err
    wide = make_model(tmp_path / "wide", seed=2, vocabulary=24)
    assert (
        "the student's vocabulary has 16 entries, the teacher's 24"
        in train("--teacher", wide, recipe="opd", status=65).err
    )
    (tmp_path / "bare").mkdir()
    for file in source.glob("model*"):
        (tmp_path / "bare" / file.name).write_bytes(file.read_bytes())
    assert "no config.json" in train("--source", tmp_path / "bare", status=66).err
    assert "there is no absent" in train(ref="absent", status=66).err
    assert "no mask to train" in train(ref=None, status=2).err
    assert not (tmp_path / "run").exists()


def test_a_mask_without_coordinates_trains_nothing(train: Train, run: Run, source: Path, tmp_path: Path) -> None:
    run("extract", source, source, "--name", "same")
    run("baseline", "same", "--kind", "complement", "--name", "everything")
    for args in (["same"], ["same", "--control", "random-per-tensor"], ["everything", "--control", "complement"]):
        for more in ([], ["--dry-run"]):
            told = train(*args[1:], *more, ref=args[0], status=2).err
            assert "has 0 of 16,096 coordinates, so nothing would be trained" in told
    assert "--control full" in told
    assert not (tmp_path / "run").exists()


BAD_LOSSES = """
import torch
def broken(model, records, context):
    return records[0]["absent"]
def vector(model, records, context):
    return next(model.parameters()).float().sum(0)
def steep(model, records, context):
    return (next(model.parameters()).float().sum() * 0).sqrt()
"""


def test_a_loss_of_ones_own_that_fails_says_where(train: Train, tmp_path: Path) -> None:
    (tmp_path / "bad_losses.py").write_text(BAD_LOSSES)
    (tmp_path / "no_losses.py").write_text("raise ValueError('as it is')")
    told = train(recipe="bad_losses:broken", status=2).err
    assert "bad_losses:broken failed: KeyError: 'absent'" in told
    assert "bad_losses.py, line 4" in told
    # Nothing was saved, so that the next try needs no other folder.
    assert "a tensor of shape [32] with gradients" in train(recipe="bad_losses:vector", status=65).err
    assert "has norm nan" in train("--save-every", "1", recipe="bad_losses:steep", status=65).err
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    assert "no_losses failed: ValueError: as it is" in train(recipe="no_losses:mine", status=2).err
    train()


def test_weights_that_became_no_numbers_are_not_saved(train: Train, tmp_path: Path) -> None:
    huge = ["--gradients", "in-backward", "--lr", "3e37", "--weight-decay", "11", "--steps", "1"]
    assert "weights are not finite after step 1" in train(*huge, status=65).err
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


def test_a_configuration_of_another_model(train: Train, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(source, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "hidden_size": 16}))
    told = train("--source", other, status=65).err
    assert "transformers cannot load it" in told
    assert "next: " in told


def test_one_file_is_no_checkpoint_to_train(run: Run, tmp_path: Path) -> None:
    whole = make_checkpoint(tmp_path / "one", {"w": ("BF16", np.zeros((2, 2), np.uint16))}) / "model.safetensors"
    data = sums(tmp_path / "data.jsonl")
    options = ["--control", "full", "--recipe", "sft", "--data", str(data), "-o", str(tmp_path / "run")]
    told = run("retrain", "--source", whole, *options, status=2).err
    assert "is a file" in told
    assert f"--source {whole.parent}" in told


def test_a_name_that_meant_something_else_can_be_had_back(train: Train, tmp_path: Path) -> None:
    told = train("--name", "toy").err
    assert "note: toy was " in told
    assert "maskreg tag toy@sha256:" in told


def test_another_run_is_not_called_complete(train: Train) -> None:
    train()
    told = train("--seed", "1", status=73).err
    assert "holds another run: seed: 0 there, 1 now" in told
    assert "complete" not in told

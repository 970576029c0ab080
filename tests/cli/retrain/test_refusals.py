"""What ``maskreg retrain`` refuses, and what it leaves behind then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

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
        ('{"prompt": "1", "completion": "2"}\n' + "[" * 100_000 + "\n", "nested deeper"),
        ('{"prompt": "# 1+1="}\n', "data.jsonl:1: the record has prompt"),
        ('{"prompt": 3, "completion": "2"}\n', "data.jsonl:1: 'prompt' is int, not text or a list"),
        ('{"prompt": "", "completion": "2"}\n', "data.jsonl:1: 'prompt' is empty"),
        ('{"text": "1"}\n{"text": "1", "more": 2}\n', "data.jsonl:2: its fields are text, more"),
        ('{"messages": []}\n', "'messages' is empty"),
        ("\n\n", "no records"),
    ],
)
def test_data_that_cannot_be_trained_on(train: Train, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "data.jsonl").write_text(text)
    assert words in train(status=65).err
    assert not (tmp_path / "run").exists()


CONFIGS = {
    "unknown.yaml": "warmup_step: 3\n",
    "option.yaml": "learning_rate: 1e-3\n",
    "fixed.yaml": "save_only_model: true\n",
    "wrong.yaml": "lr_scheduler_type: steep\n",
    "list.yaml": "- 1\n",
    "parts.yaml": "gradient_accumulation_steps: 3\n",
    "none.yaml": "gradient_accumulation_steps: 0\n",
}


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["--data", "absent.jsonl"], 66, "no such file"),
        (["--recipe", "dpo"], 2, "there is no recipe 'dpo'"),
        (["--recipe", "opd"], 2, "--teacher TEACHER"),
        (["--recipe", "grpo"], 2, "needs a reward"),
        (["--recipe", "grpo", "--reward", "absent:mine"], 2, "cannot be imported"),
        (["--recipe", "grpo", "--reward", "json:absent"], 2, "json has no function 'absent'"),
        (["--loss", "../own:mine"], 2, "is not module:function"),
        (["--loss", "failing:mine"], 2, "failing failed: ValueError: as it is"),
        (["--teacher", "."], 2, "takes no teacher"),
        (["--max-new-tokens", "3"], 2, "takes no max-new-tokens"),
        (["--control", "nonsense"], 2, "there is no control 'nonsense'"),
        (["--control", "complement", "--control-seed", "1"], 2, "takes no seed"),
        (["--control-seed", "1"], 2, "--control KIND"),
        (["--config", "absent.yaml"], 2, "No such file"),
        (["--config", "unknown.yaml"], 2, "has no key 'warmup_step'"),
        (["--config", "option.yaml"], 2, "--lr LR"),
        (["--config", "fixed.yaml"], 2, "save_only_model cannot be set"),
        (["--config", "wrong.yaml"], 2, "steep is not a valid SchedulerType"),
        (["--config", "list.yaml"], 65, "no mapping"),
        (["--config", "none.yaml"], 2, "gradient_accumulation_steps cannot be 0"),
        (["--config", "parts.yaml"], 2, "--batch-size 6"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_questions_that_make_no_sense(train: Train, args: list[str], status: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("raise ValueError('as it is')")
    for name, text in CONFIGS.items():
        (tmp_path / name).write_text(text)
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


def test_a_tokenizer_without_an_end_or_a_template(train: Train, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(source, other)
    (other / "chat_template.jinja").unlink()
    data = write_lines(tmp_path / "chats.jsonl", [{"messages": [{"role": "user", "content": "1"}]}])
    assert "no chat template" in train("--source", other, "--data", data, status=65).err
    config = json.loads((other / "tokenizer_config.json").read_text())
    (other / "tokenizer_config.json").write_text(json.dumps({**config, "eos_token": None}))
    assert "has no end token" in train("--source", other, status=65).err
    assert not (tmp_path / "run").exists()


def test_an_old_trl_is_refused_before_anything_is_read(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.train.retrain.setup.version", lambda _: "1.9.1")
    told = train("--data", "absent.jsonl", status=78).err
    assert "training needs TRL 1.16 or later, not 1.9.1" in told
    assert "[train]" in told


def test_a_step_that_is_no_number_is_not_taken(train: Train, tmp_path: Path) -> None:
    (tmp_path / "steep.py").write_text("def loss(o, l, **_):\n    return (o.logits.float() * 0).sum().sqrt()\n")
    assert "has norm nan; the step was not taken" in train("--loss", "steep:loss", "--save-every", "1", status=65).err
    assert not list((tmp_path / "run" / "checkpoints").glob("checkpoint-*"))
    train()  # nothing was saved, so that the next try needs no other folder


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

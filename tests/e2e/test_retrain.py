"""Training runs that are killed, interrupted and shared by two processes, through the installed command."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import Person, same_files
from tests.train.making import make_model, make_target, sums

FEW = ["--batch-size", "4", "--lr", "1e-3", "--seed", "5"]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    """A user with a mask called ``toy`` of a checkpoint that is called ``source``."""
    someone = Person(tmp_path_factory.mktemp("trainer"), {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    source = make_model(someone.home / "source", seed=1)
    someone.run("extract", source, make_target(source, someone.home / "target"), "--name", "toy")
    make_model(someone.home / "teacher", seed=2)
    sums(someone.home / "data.jsonl")
    (someone.home / "rewards.py").write_text(
        "def length(completions, **_):\n    return [float(len(c)) for c in completions]\n"
    )
    (someone.home / "grpo.yaml").write_text("num_generations: 2\n")
    return someone


def command(*more: str) -> list[str]:
    return ["retrain", "toy", "--source", "source", "--data", "data.jsonl", *FEW, *more]


def metrics(run: Path) -> list[dict[str, Any]]:
    """What a run says of its steps, but for how long they took."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in ("step", "loss", "lr", "grad_norm")} for line in lines]


def stop_at(process: subprocess.Popen[bytes], run: Path, lines: int, signum: int) -> tuple[int, str]:
    """Send a signal once the metrics have so many lines; the exit code, and what was said on stderr."""
    file = run / "metrics.jsonl"
    while process.poll() is None and (not file.exists() or file.read_bytes().count(b"\n") < lines):
        time.sleep(0.002)
    process.send_signal(signum)
    _, told = process.communicate()
    return process.returncode, told.decode()


def test_a_run_that_was_killed_and_interrupted_gives_the_same_bits(person: Person) -> None:
    long = command("--recipe", "sft", "--steps", "40", "--save-every", "7")
    person.run(*long, "-o", "whole")
    run = person.home / "parted"
    ended, _ = stop_at(person.start(*long, "-o", run), run, 17, signal.SIGKILL)
    assert ended == -signal.SIGKILL
    assert not (run / "model").exists()
    done = max(int(file.parent.name.partition("-")[2]) for file in (run / "checkpoints").glob("checkpoint-*/complete"))
    (run / "checkpoints" / "checkpoint-39").mkdir()  # as a kill in the middle of a save leaves it
    ended, told = stop_at(person.start(*long, "-o", run), run, 30, signal.SIGINT)
    assert ended == 130
    assert f"resuming after step {done} of 40" in told
    assert "Traceback" not in told
    person.run(*long, "-o", run)
    assert same_files(run / "model", person.home / "whole" / "model")
    assert metrics(run) == metrics(person.home / "whole")
    assert len(list((run / "checkpoints").glob("checkpoint-*"))) == 2
    (run / "summary.json").unlink()
    shutil.rmtree(run / "model")
    person.run(*long, "-o", run)  # from the save of the last step, after which there is none to take
    assert same_files(run / "model", person.home / "whole" / "model")


@pytest.mark.parametrize(
    "recipe",
    [
        ["opd", "--teacher", "teacher", "--max-new-tokens", "6"],
        ["grpo", "--reward", "rewards:length", "--config", "grpo.yaml", "--max-new-tokens", "6"],
    ],
    ids=lambda words: words[0],
)
def test_sampling_runs_resume_and_stay_inside_the_mask(person: Person, recipe: list[str]) -> None:
    run = person.home / recipe[0]
    long = command("--recipe", *recipe, "--steps", "12", "--save-every", "2", "-o", str(run), "--json")
    stop_at(person.start(*long), run, 7, signal.SIGKILL)
    assert not (run / "model").exists()
    done = json.loads(person.run(*long))
    assert [line["step"] for line in metrics(run)] == list(range(1, 13))
    assert done["outside_mask"] == 0 < done["visible"]


def test_two_processes_train_what_one_does_and_one_goes_on_with_it(person: Person) -> None:
    words = command("--recipe", "sft", "--steps", "4", "--save-every", "2", "--dtype", "float32", "--json")
    one = json.loads(person.run(*words, "-o", "one"))
    two = json.loads(person.run(*words, "-o", "two", "--", "--nproc-per-node", "2"))
    assert two["last_loss"] == pytest.approx(one["last_loss"], abs=1e-4)
    assert two["environments"][0]["processes"] == 2
    run = person.home / "two"
    (run / "summary.json").unlink()
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints" / "checkpoint-4")
    again = json.loads(person.run(*words, "-o", "two"))
    assert again["last_loss"] == pytest.approx(two["last_loss"], abs=1e-4)
    assert [line["step"] for line in metrics(run)] == [1, 2, 3, 4]
    assert [entry["after_step"] for entry in again["environments"]] == [0, 2]


@pytest.mark.parametrize(
    ("more", "launcher", "exit", "words"),
    [
        ((), "--nproc-per-node banana", 78, "nproc_per_node value: banana"),
        (("--batch-size", "3"), "--nproc-per-node 2", 2, "batches of 3 records cannot be taken in 2 equal parts"),
    ],
)
def test_what_goes_wrong_in_processes_is_said(
    person: Person, more: tuple[str, ...], launcher: str, exit: int, words: str
) -> None:
    long = command("--recipe", "sft", "--steps", "2", *more)
    told = person.run(*long, "-o", "odd", "--", *launcher.split(), exit=exit)
    assert words in told

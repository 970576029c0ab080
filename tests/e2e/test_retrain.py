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

FEW = ["--recipe", "sft", "--batch-size", "4", "--lr", "1e-3", "--seed", "5"]
LONG = [*FEW, "--steps", "80", "--save-every", "7", "--micro-batch-size", "2"]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    """A user with a mask called ``toy`` of a checkpoint that is called ``source``."""
    someone = Person(tmp_path_factory.mktemp("trainer"), {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    source = make_model(someone.home / "source", seed=1)
    someone.run("extract", source, make_target(source, someone.home / "target"), "--name", "toy")
    make_model(someone.home / "teacher", seed=2)
    sums(someone.home / "data.jsonl")
    return someone


def metrics(run: Path) -> list[dict[str, Any]]:
    """What a run says of its steps, but for how long they took."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def stop_at(process: subprocess.Popen[bytes], run: Path, lines: int, signum: int) -> tuple[int, str]:
    """Send a signal once the metrics have so many lines; the exit code, and what was said on stderr."""
    file = run / "metrics.jsonl"
    while process.poll() is None and (not file.exists() or file.read_bytes().count(b"\n") < lines):
        time.sleep(0.002)
    process.send_signal(signum)
    _, told = process.communicate()
    return process.returncode, told.decode()


def test_a_run_that_was_killed_and_interrupted_gives_the_same_bits(person: Person) -> None:
    command = ["retrain", "toy", "--source", "source", "--data", "data.jsonl", *LONG]
    person.run(*command, "-o", "whole")
    run = person.home / "parted"
    ended, _ = stop_at(person.start(*command, "-o", run), run, 17, signal.SIGKILL)
    assert ended == -signal.SIGKILL
    assert len(metrics(run)) < 80
    assert not (run / "model").exists()
    ended, told = stop_at(person.start(*command, "-o", run), run, 40, signal.SIGINT)
    assert ended == 130
    assert "resuming after step 14 of 80" in told
    assert "Traceback" not in told
    assert len(list((run / "checkpoints").glob("[0-9]*"))) == 2
    person.run(*command, "-o", run)
    assert same_files(run / "model", person.home / "whole" / "model")
    assert metrics(run) == metrics(person.home / "whole")


def test_two_processes_train_what_one_does_and_one_goes_on_with_it(person: Person) -> None:
    command = ["retrain", "toy", "--source", "source", "--data", "data.jsonl", *FEW, "--steps", "4"]
    command += ["--recipe", "opd", "--teacher", "teacher", "--max-new-tokens", "6", "--dtype", "float32"]
    command += ["--save-every", "2", "--json"]
    one = json.loads(person.run(*command, "-o", "one"))
    two = json.loads(person.run(*command, "-o", "two", "--", "--nproc-per-node", "2"))
    assert two["last_loss"] == pytest.approx(one["last_loss"], abs=1e-4)
    assert two["visible"] == pytest.approx(one["visible"], rel=0.02)
    run = person.home / "two"
    (run / "summary.json").unlink()
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints" / "00000004")
    again = json.loads(person.run(*command, "-o", "two"))
    assert again["last_loss"] == pytest.approx(two["last_loss"], abs=1e-4)
    assert [line["step"] for line in metrics(run)] == [1, 2, 3, 4]


def test_copies_share_a_step_and_say_what_goes_wrong_in_them(person: Person) -> None:
    command = ["retrain", "toy", "--source", "source", "--data", "data.jsonl", *FEW, "--steps", "2"]
    launcher = ["--parallel", "ddp", "--json", "--", "--nproc-per-node", "2"]
    summary = json.loads(person.run(*command, "-o", "copies", *launcher))
    assert summary["visible"]
    told = person.run(*command, "--batch-size", "3", "-o", "odd", *launcher, exit=2)
    assert "2 processes cannot share batches of 3" in told

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

from maskreg.train.retrain.folder import RunFolder
from tests.e2e.running import Person, same_files
from tests.servers import free_ports
from tests.train.making import make_model, make_target, sums

FEW = ["--batch-size", "4", "-c", "learning_rate=1e-3", "-c", "seed=5"]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Person:
    """A user with a mask called ``toy`` of a checkpoint that is called ``source``."""
    someone = Person(tmp_path_factory.mktemp("trainer"), {"CUDA_VISIBLE_DEVICES": ""}, programs)
    source = make_model(someone.home / "source", seed=1)
    someone.run("extract", source, make_target(source, someone.home / "target"), "--name", "toy")
    sums(someone.home / "data.jsonl")
    return someone


def command(*more: str) -> list[str]:
    return ["retrain", "toy", "--source", "source", "--recipe", "sft", "--data", "data.jsonl", *FEW, *more]


def metrics(run: Path) -> list[dict[str, Any]]:
    """What a run says of its steps, but for how long they took."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in ("step", "loss", "learning_rate", "grad_norm")} for line in lines]


def stop_at(process: subprocess.Popen[bytes], run: Path, lines: int, signum: int) -> tuple[int, str]:
    """Send a signal once the metrics have so many lines; the exit code, and what was said on stderr."""
    file = run / "metrics.jsonl"
    while process.poll() is None and (not file.exists() or file.read_bytes().count(b"\n") < lines):
        time.sleep(0.002)
    process.send_signal(signum)
    _, told = process.communicate()
    return process.returncode, told.decode()


def test_a_run_that_was_killed_and_interrupted_gives_the_same_bits(person: Person) -> None:
    long = command("-c", "max_steps=24", "-c", "save_steps=5")
    whole = person.start(*long, "-o", "whole")  # beside the others, which take their time to start as well
    run = person.home / "parted"
    ended, _ = stop_at(person.start(*long, "-o", run), run, 9, signal.SIGKILL)
    assert ended == -signal.SIGKILL
    assert not (run / "model").exists()
    done = max(int(file.parent.name.partition("-")[2]) for file in (run / "checkpoints").glob("checkpoint-*/complete"))
    (run / "checkpoints" / "checkpoint-23").mkdir()  # as a kill in the middle of a save leaves it
    ended, told = stop_at(person.start(*long, "-o", run), run, 16, signal.SIGINT)
    assert ended == 130
    assert f" {done} of 24" in told
    assert "Traceback" not in told
    person.run(*long, "-o", run)
    whole.communicate()
    assert whole.returncode == 0
    assert same_files(run / "model", person.home / "whole" / "model")
    assert metrics(run) == metrics(person.home / "whole")
    assert len(list((run / "checkpoints").glob("checkpoint-*"))) == 2


def test_two_processes_train_what_one_does_and_one_goes_on_with_it(person: Person) -> None:
    words = command("-c", "max_steps=4", "-c", "save_steps=2", "--dtype", "float32", "--json", "-o", "two")

    def in_two_processes(status: int, *of_second: str) -> bytes:
        (port,) = free_ports(1)
        group = {**person.env, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        ranks = [
            person.start(*words, *more, env={**group, "RANK": rank, "LOCAL_RANK": rank})
            for rank, more in (("0", ()), ("1", of_second))
        ]
        said = [process.communicate() for process in ranks]
        assert [process.returncode for process in ranks] == [status, status], said
        return said[0][0]

    in_two_processes(2, "-c", "seed=6")
    with RunFolder(person.home / "two").locked():
        in_two_processes(75)
    two = json.loads(in_two_processes(0))
    assert two["environments"][0]["processes"] == 2
    run = person.home / "two"
    (run / "summary.json").unlink()
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints" / "checkpoint-4")
    kept = (run / "metrics.jsonl").rename(run / "kept.jsonl")
    (run / "metrics.jsonl").symlink_to("nowhere")  # which the first process does not replace
    in_two_processes(73)
    kept.rename(run / "metrics.jsonl")
    again = json.loads(person.run(*words))
    assert again["last_loss"] == pytest.approx(two["last_loss"], abs=1e-4)
    assert [line["step"] for line in metrics(run)] == [1, 2, 3, 4]
    assert [entry["after_step"] for entry in again["environments"]] == [0, 2]

"""A run that is killed after its last save, and what is told of the processes that torchrun starts."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from maskreg.errors import WorkerError
from maskreg.train.retrain import run
from maskreg.train.retrain.folder import RunFolder, RunPaths
from maskreg.train.retrain.run import launch
from maskreg.train.retrain.setup import RunSetup
from tests.flow.making import stored
from tests.train.making import make_model, sums

Launch = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of 4 steps, of which 3 make an epoch, at a constant learning rate."""
    setup = RunSetup("sft", "s", "d", "", steps=4, batch_size=4, lr=1e-3, config={"lr_scheduler_type": "constant"})
    paths = RunPaths(str(tmp_path / "source"), str(tmp_path / "data.jsonl"), str(tmp_path), save_every=2)
    made = RunFolder(tmp_path / "run")
    with made.locked():
        made.begin(setup, paths)
    return made


@pytest.fixture
def launched(folder: RunFolder) -> Launch:
    """Launches the run; the lines that were reported."""

    def call(*options: str, then: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = []

        def listener(line: Any) -> None:
            reported.append(line)
            then()

        with folder.locked() as lock:
            launch(folder, options, listener, lock=lock)
        return reported

    return call


@pytest.fixture
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def outcome(folder: RunFolder) -> tuple[Any, ...]:
    lines = [{name: line[name] for name in ("step", "loss", "lr", "grad_norm")} for line in folder.metrics()]
    return stored(folder.model), lines, folder.environments()


@pytest.mark.usefixtures("_one_thread")
def test_a_run_that_was_killed_after_its_last_save_takes_no_step_more(
    folder: RunFolder, launched: Launch, tmp_path: Path
) -> None:
    make_model(tmp_path / "source", seed=1)
    sums(tmp_path / "data.jsonl")
    assert [line["step"] for line in launched()] == [1, 2, 3, 4]
    whole = outcome(folder)
    for options in ((), ("--nproc-per-node=2",)):
        shutil.rmtree(folder.model)
        assert launched(*options) == []
        assert outcome(folder) == whole
    # As FSDP leaves it, whose shards have other names.
    shutil.rmtree(folder.model)
    (folder.checkpoints / "checkpoint-4" / "model.safetensors").unlink()
    assert [line["step"] for line in launched()] == [3, 4]
    assert outcome(folder) == whole


@pytest.fixture
def torchrun(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Lets a script of the shell stand for torchrun; ``step N LOSS`` writes a line of the metrics."""

    def be(script: str) -> None:
        line = json.dumps({"step": 0, "loss": 0}).replace("0", "%s")
        file = tmp_path / "torchrun"
        file.write_text(
            f"#!/bin/sh\nstep() {{ printf '{line}\\n' $1 $2 >> '{folder.path}/metrics.jsonl'; }}\n{script}\n"
        )
        file.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(file))

    return be


def test_steps_that_are_taken_again_are_reported_again(
    folder: RunFolder, launched: Launch, torchrun: Callable[[str], None]
) -> None:
    (folder.checkpoints / "checkpoint-1").mkdir()
    folder.complete_save(1)
    for step in (1, 2, 3):
        folder.append_metrics({"step": step, "loss": 0})
    torchrun("sleep 0.5; step 2 7; step 3 8; step 4 9")
    assert [(line["step"], line["loss"]) for line in launched("-x")] == [(2, 7), (3, 8), (4, 9)]


def test_lines_are_reported_that_were_written_just_before_the_end(
    folder: RunFolder, launched: Launch, torchrun: Callable[[str], None], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    torchrun(f"step 1 1; while [ ! -e '{go}' ]; do sleep 0.01; done; step 2 2")

    def then() -> None:
        go.touch()
        while len(folder.metrics()) < 2:
            time.sleep(0.01)
        time.sleep(0.3)  # until the process has ended

    assert [line["step"] for line in launched("-x", then=then)] == [1, 2]


def test_processes_that_do_not_end_when_asked_are_killed(
    launched: Launch, torchrun: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_ENDING_SECONDS", 0.2)
    torchrun("trap '' TERM; step 1 1; exec sleep 60")

    def then() -> None:
        raise WorkerError("stop")

    began = time.monotonic()
    with pytest.raises(WorkerError, match="stop"):
        launched("-x", then=then)
    assert time.monotonic() - began < 30

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from maskreg.errors import TryAgainError, UsageError, WorkerError
from maskreg.mask.packed import Mask
from maskreg.train.recipes.setup import RunSetup
from maskreg.train.runs import engine, launcher
from maskreg.train.runs.folder import RunFolder, RunPaths
from maskreg.train.runs.launch import launch
from maskreg.train.runs.worker import SilentSteps
from tests.train.making import make_model, sums

NOWHERE = RunPaths(source="/s", data="/d", home="/h")


def started(folder: RunFolder, options: list[str], paths: RunPaths, recipe: str = "sft") -> None:
    """Launch a run on all coordinates."""
    with folder.locked() as lock:
        folder.begin(RunSetup(recipe=recipe, source="s", data="d", mask="", batch=2), paths)
        launch(folder, options, SilentSteps(), lock=lock)


def test_a_process_that_raised_is_told_by_its_rank_and_error(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.locked() as lock:
        folder.begin(RunSetup(recipe="sft", source="s", data="d", mask="m"), NOWHERE)
        # Only the processes that train read it.
        (folder.path / "paths.json").write_text('{"nonsense": 1}')
        with pytest.raises(WorkerError, match=r"rank 0 \(pid \d+\) ended with 1: TypeError: .*'nonsense'") as told:
            launch(folder, ["--nproc-per-node", "1"], SilentSteps(), lock=lock)
    assert told.value.hint == f"less {folder.log}"
    assert "Traceback" in folder.log.read_text()


def test_a_process_that_was_ended_is_told_by_its_rank_and_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A loss of one's own can do anything to its process.
    (tmp_path / "fatal.py").write_text(
        "import os\n"
        "def loss(model, records, context):\n"
        f"    if os.environ['RANK'] == '1': os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
        "    return next(model.parameters()).float().sum()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    source, data = make_model(tmp_path / "source"), sums(tmp_path / "data.jsonl")
    paths = RunPaths(source=str(source), data=str(data), home=str(tmp_path))
    with pytest.raises(TryAgainError, match=r"rank 1 \(pid \d+\) was ended by SIGKILL, most likely because memory ran"):
        started(RunFolder(tmp_path / "run"), ["--nproc-per-node", "2"], paths, recipe="fatal:loss")


def test_a_process_that_is_done_does_not_fail_while_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As a thread of Gloo does now and then.
    (tmp_path / "aborting.py").write_text(
        "import atexit, os\n"
        "atexit.register(os.abort)\n"
        "def loss(model, records, context):\n"
        "    return next(model.parameters()).float().sum()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    source, data = make_model(tmp_path / "source"), sums(tmp_path / "data.jsonl")
    folder = RunFolder(tmp_path / "run")
    paths = RunPaths(source=str(source), data=str(data), home=str(tmp_path))
    started(folder, ["--nproc-per-node", "1"], paths, recipe="aborting:loss")
    assert (folder.model / "config.json").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--nproc-per-node", "banana"], "Unsupported nproc_per_node value: banana"),
        (["--nproc-per-node", "0"], "0 processes"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--help"], "they ask for help, not for a run"),
        (["--max-restarts", "-1"], "max_restarts must be >= 0"),
    ],
)
def test_options_that_torchrun_does_not_take(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # torchrun would set it
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    assert launcher.main(str(folder.path), options) == 2
    told = folder.take_failure()
    assert isinstance(told, UsageError)
    assert told.message == f"torchrun's options: {words}"


def test_memory_that_runs_out_is_no_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(*_: object) -> Mask:
        raise MemoryError("cannot allocate 3 TB")

    monkeypatch.setattr(engine, "mask_to_train", allocate)
    source, data = make_model(tmp_path / "source"), sums(tmp_path / "data.jsonl")
    with pytest.raises(TryAgainError, match="memory ran out: cannot allocate 3 TB"):
        started(RunFolder(tmp_path / "run"), [], RunPaths(source=str(source), data=str(data), home=str(tmp_path)))

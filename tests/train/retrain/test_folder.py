from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskreg.errors import (
    CannotCreateError,
    CorruptError,
    DataError,
    FormatError,
    MaskregError,
    NoSpaceError,
    OutputExistsError,
    TryAgainError,
    UsageError,
)
from maskreg.train.retrain.folder import RunFolder, RunPaths
from maskreg.train.retrain.setup import RunSetup

SETUP = RunSetup(recipe="sft", source="s", data="d", mask="m", control={"kind": "subset", "density": 0.5}, lr=3e-7)
PATHS = RunPaths(source="/s", data="/d", home="/h")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    with made.locked():
        made.begin(SETUP, PATHS)
    return made


def save(folder: RunFolder, step: int) -> None:
    place = folder.checkpoints / f"checkpoint-{step}"
    place.mkdir()
    (place / "state").write_text(str(step))
    folder.complete_save(step)


def test_a_setup_is_read_back_as_it_was(folder: RunFolder) -> None:
    assert folder.setup() == SETUP
    assert folder.paths() == PATHS
    folder.check(SETUP)
    save(folder, 1)
    with pytest.raises(OutputExistsError, match=r"lr: 3e-07 there, 0\.1 now; seed: 0 there, 1 now"):
        folder.check(replace(SETUP, lr=0.1, seed=1))
    with pytest.raises(FormatError, match="another version of maskreg: lr"):
        RunSetup.from_json({key: value for key, value in vars(SETUP).items() if key != "lr"})


def test_only_one_process_works_in_it(folder: RunFolder) -> None:
    with folder.locked(), pytest.raises(TryAgainError, match="another process trains"), RunFolder(folder.path).locked():
        pass
    with folder.locked():
        pass


def test_a_folder_that_died_at_birth_may_be_begun_again(tmp_path: Path) -> None:
    made = RunFolder(tmp_path / "run")
    with made.locked():
        (made.path / ".run.json.0f3c9a17.draft").write_text("{")
        assert not made.has_run()
    (made.path / "other").touch()
    with pytest.raises(OutputExistsError, match="holds no run"):
        made.has_run()
    with pytest.raises(CannotCreateError, match="other is not a directory"):
        RunFolder(made.path / "other" / "run").has_run()


def test_steps_that_are_taken_again_are_forgotten(folder: RunFolder) -> None:
    first, second = {"processes": 1, "device": "cpu AVX2"}, {"processes": 2, "device": "cpu AVX2"}
    folder.resume(0, second)
    folder.resume(0, first)
    for step in (1, 2, 3):
        folder.append_metrics({"step": step})
    file = folder.path / "metrics.jsonl"
    file.write_text(file.read_text() + '{"step"')  # of a process that was killed
    folder.resume(2, first)
    assert folder.metrics() == [{"step": 1}, {"step": 2}]
    assert folder.environments() == [{"after_step": 0, **first}]
    folder.resume(70, second)
    assert folder.environments() == [{"after_step": 0, **first}, {"after_step": 70, **second}]
    folder.resume(50, second)
    assert folder.environments() == [{"after_step": 0, **first}, {"after_step": 50, **second}]
    folder.begin(SETUP, PATHS)
    assert folder.environments()[1]["after_step"] == 50


def test_metrics_and_saves_of_steps_that_are_taken_again_are_removed(folder: RunFolder) -> None:
    for step in (1, 2, 3):
        folder.append_metrics({"step": step})
        save(folder, step)
    folder.forget_after(2)
    assert folder.metrics() == [{"step": 1}, {"step": 2}]
    assert sorted(entry.name for entry in folder.checkpoints.iterdir()) == ["checkpoint-1", "checkpoint-2"]


def test_a_save_counts_once_it_is_whole(folder: RunFolder) -> None:
    assert folder.latest_save() is None
    for step in (3, 9, 12):
        save(folder, step)
    half = folder.checkpoints / "checkpoint-15"
    half.mkdir()
    assert folder.latest_save() == (12, folder.checkpoints / "checkpoint-12")
    folder.begin(SETUP, PATHS)
    assert not half.exists()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UsageError("a", hint="b", options={"batch_size": 4}), UsageError),
        (CorruptError("key", "what", hint="h"), DataError),
        (TryAgainError("again"), TryAgainError),
    ],
)
def test_failures_are_told_by_another_process(folder: RunFolder, error: MaskregError, kind: type[Any]) -> None:
    assert folder.take_failure() is None
    folder.record_failure(error)
    folder.record_failure(UsageError("a later one"))
    told = folder.take_failure()
    assert isinstance(told, kind)
    assert told.to_json() == error.to_json()
    assert folder.take_failure() is None


def test_a_run_that_has_saved_nothing_makes_way_for_another(folder: RunFolder) -> None:
    other = replace(SETUP, seed=1)
    folder.begin(other, PATHS)
    assert folder.setup() == other
    save(folder, 1)
    with pytest.raises(OutputExistsError, match="seed: 1 there, 0 now"):
        folder.begin(SETUP, PATHS)
    assert folder.setup() == other


def test_shards_of_the_last_step_are_no_save_to_resume_from(folder: RunFolder) -> None:
    save(folder, SETUP.steps - 1)
    save(folder, SETUP.steps)
    assert folder.latest_save() == (SETUP.steps - 1, folder.checkpoints / f"checkpoint-{SETUP.steps - 1}")
    last = folder.checkpoints / f"checkpoint-{SETUP.steps}"
    (last / "model.safetensors").touch()
    assert folder.latest_save() == (SETUP.steps, last)
    folder.forget_after(0)
    save(folder, SETUP.steps)
    assert folder.latest_save() is None
    with pytest.raises(OutputExistsError, match="and holds another run"):
        folder.check(replace(SETUP, seed=1))


def test_metrics_that_find_no_room(folder: RunFolder) -> None:
    (folder.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(NoSpaceError, match=r"metrics\.jsonl: the disk became full"):
        folder.append_metrics({"step": 1})

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

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
from maskreg.mask.algebra import Everything
from maskreg.train import MaskedAdamW
from maskreg.train.recipes.setup import RunSetup
from maskreg.train.runs.folder import KEPT_CHECKPOINTS, RunFolder, RunPaths
from maskreg.train.runs.parallel import World
from maskreg.train.runs.states import save_state

SETUP = RunSetup(recipe="sft", source="s", data="d", mask="m", control={"kind": "subset", "density": 0.5}, lr=3e-7)
ALONE = World(0, 1, torch.device("cpu"))
PATHS = RunPaths(source="/s", data="/d", home="/h")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    with made.locked():
        made.begin(SETUP, PATHS)
    return made


def test_a_setup_is_read_back_as_it_was(folder: RunFolder) -> None:
    assert folder.setup() == SETUP
    assert folder.paths() == PATHS
    folder.check(SETUP)
    folder.save_checkpoint(1, lambda path: None, ALONE)
    with pytest.raises(
        OutputExistsError, match=r"betas: \[0.9, 0.999\] there, \[0.9, 0.95\] now; seed: 0 there, 1 now"
    ):
        folder.check(replace(SETUP, betas=(0.9, 0.95), seed=1))


def test_a_setup_of_another_version(folder: RunFolder) -> None:
    value = SETUP.to_json()
    with pytest.raises(FormatError, match="another version of maskreg: lr"):
        RunSetup.from_json({key: value[key] for key in value if key != "lr"})


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


def test_half_a_line_is_no_line(folder: RunFolder) -> None:
    for step in (1, 2, 3):
        folder.append_metrics({"step": step})
    file = folder.path / "metrics.jsonl"
    file.write_text(file.read_text() + '{"step"')
    assert [line["step"] for line in folder.metrics()] == [1, 2, 3]
    folder.truncate_metrics(2)
    folder.append_metrics({"step": 3, "again": True})
    assert folder.metrics() == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]
    assert folder.metrics(after=2) == [{"step": 3, "again": True}]
    assert folder.metrics(after=3) == []


def test_environments_are_those_of_the_steps_that_were_kept(folder: RunFolder) -> None:
    first, second = {"processes": 1, "device": "cpu AVX2"}, {"processes": 2, "device": "cpu AVX2"}
    assert folder.environments() == []
    folder.record_environment(0, second)
    folder.record_environment(0, first)
    assert folder.environments() == [{"after_step": 0, **first}]
    folder.record_environment(50, first)
    assert folder.environments() == [{"after_step": 0, **first}]
    folder.record_environment(70, second)
    assert folder.environments() == [{"after_step": 0, **first}, {"after_step": 70, **second}]
    folder.record_environment(50, second)
    assert folder.environments() == [{"after_step": 0, **first}, {"after_step": 50, **second}]
    folder.record_environment(50, first)
    assert folder.environments() == [{"after_step": 0, **first}]


def save(folder: RunFolder, step: int) -> None:
    folder.save_checkpoint(step, lambda path: path.joinpath("state").write_text(str(step)), ALONE)  # type: ignore[arg-type]


def test_the_last_checkpoints_stay(folder: RunFolder) -> None:
    assert folder.latest_checkpoint() is None
    (folder.path / "checkpoints" / "00000009.draft").mkdir()
    for step in (3, 6, 9):
        save(folder, step)
    latest = folder.latest_checkpoint()
    assert latest is not None
    assert latest[0] == 9
    assert (latest[1] / "state").read_text() == "9"
    assert len(list((folder.path / "checkpoints").iterdir())) == KEPT_CHECKPOINTS


def test_a_checkpoint_that_fails_to_be_written_is_none(folder: RunFolder) -> None:
    def fail(place: Path) -> None:
        (place / "state").write_text("half")
        raise OSError(28, "full")

    with pytest.raises(OSError, match="full"):
        folder.save_checkpoint(3, fail, ALONE)
    assert folder.latest_checkpoint() is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UsageError("a", hint="b"), UsageError),
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
    assert (told.message, told.hint, told.code) == (error.message, error.hint, error.code)
    assert folder.take_failure() is None


def test_a_summary_says_that_it_is_complete(folder: RunFolder) -> None:
    assert folder.summary() is None
    folder.write_summary({"model": "x"})
    assert folder.summary() == {"model": "x"}
    assert json.loads((folder.path / "summary.json").read_text()) == {"model": "x"}


def test_a_run_that_has_saved_nothing_makes_way_for_another(folder: RunFolder) -> None:
    other = replace(SETUP, seed=1)
    folder.check(other)
    with folder.locked():
        folder.begin(other, PATHS)
    assert folder.setup() == other
    folder.save_checkpoint(1, lambda path: None, ALONE)
    with folder.locked(), pytest.raises(OutputExistsError, match="seed: 1 there, 0 now"):
        folder.begin(SETUP, PATHS)
    assert folder.setup() == other


def test_a_place_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotCreateError, match="file is not a directory"):
        RunFolder(tmp_path / "file" / "under" / "run").has_run()


def test_a_disk_that_becomes_full_while_a_checkpoint_is_written(folder: RunFolder) -> None:
    folder.save_checkpoint(1, lambda path: None, ALONE)

    def write(place: Path) -> None:
        (place / "state.pt").symlink_to("/dev/full")
        model = torch.nn.Linear(100, 100)
        optimizer = MaskedAdamW(model.named_parameters(), mask=Everything({"weight": (100, 100), "bias": (100,)}))
        save_state(place, model, optimizer, ALONE)

    with pytest.raises(NoSpaceError, match="00000002: the disk became full"):
        folder.save_checkpoint(2, write, ALONE)
    assert [path.name for path in (folder.path / "checkpoints").iterdir()] == ["00000001"]


def test_metrics_that_find_no_room(folder: RunFolder) -> None:
    (folder.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(NoSpaceError, match=r"metrics\.jsonl: the disk became full"):
        folder.append_metrics({"step": 1})

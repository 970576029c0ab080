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
from maskreg.mask.everything import Everything
from maskreg.train import MaskedAdamW
from maskreg.train.recipes.setup import Places, Setup
from maskreg.train.runs.folder import KEPT, Folder
from maskreg.train.runs.parallel import World
from maskreg.train.runs.states import save_state

SETUP = Setup(recipe="sft", source="s", data="d", mask="m", control={"kind": "subset", "density": 0.5}, lr=3e-7)
PLACES = Places(source="/s", data="/d", home="/h")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "run")
    with made.locked():
        made.begin(SETUP, PLACES)
    return made


def test_a_setup_is_read_back_as_it_was(folder: Folder) -> None:
    assert folder.setup() == SETUP
    assert folder.places() == PLACES
    folder.check(SETUP)
    folder.save(1, lambda place: None, first=True, meet=lambda: None)
    with pytest.raises(
        OutputExistsError, match=r"betas: \[0.9, 0.999\] there, \[0.9, 0.95\] now; seed: 0 there, 1 now"
    ):
        folder.check(replace(SETUP, betas=(0.9, 0.95), seed=1))


def test_a_setup_of_another_version(folder: Folder) -> None:
    value = SETUP.to_json()
    with pytest.raises(FormatError, match="another version of maskreg: lr"):
        Setup.from_json({key: value[key] for key in value if key != "lr"})


def test_only_one_process_works_in_it(folder: Folder) -> None:
    with folder.locked(), pytest.raises(TryAgainError, match="another process trains"), Folder(folder.path).locked():
        pass
    with folder.locked():
        pass


def test_a_folder_that_died_at_birth_may_be_begun_again(tmp_path: Path) -> None:
    made = Folder(tmp_path / "run")
    with made.locked():
        (made.path / ".run.json.draft").write_text("{")
        assert not made.begun()
    (made.path / "other").touch()
    with pytest.raises(OutputExistsError, match="holds no run"):
        made.begun()


def test_half_a_line_is_no_line(folder: Folder) -> None:
    for step in (1, 2, 3):
        folder.step({"step": step})
    file = folder.path / "metrics.jsonl"
    file.write_text(file.read_text() + '{"step"')
    assert [line["step"] for line in folder.metrics()] == [1, 2, 3]
    folder.go_back(2)
    folder.step({"step": 3, "again": True})
    assert folder.metrics() == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]
    assert folder.metrics(after=2) == [{"step": 3, "again": True}]
    assert folder.metrics(after=3) == []


def save(folder: Folder, step: int) -> None:
    folder.save(step, lambda place: place.joinpath("state").write_text(str(step)), first=True, meet=lambda: None)  # type: ignore[arg-type]


def test_the_last_checkpoints_stay(folder: Folder) -> None:
    assert folder.latest() is None
    (folder.path / "checkpoints" / "00000009.draft").mkdir()
    for step in (3, 6, 9):
        save(folder, step)
    latest = folder.latest()
    assert latest is not None
    assert latest[0] == 9
    assert (latest[1] / "state").read_text() == "9"
    assert len(list((folder.path / "checkpoints").iterdir())) == KEPT


def test_a_checkpoint_that_fails_to_be_written_is_none(folder: Folder) -> None:
    def fail(place: Path) -> None:
        (place / "state").write_text("half")
        raise OSError(28, "full")

    with pytest.raises(OSError, match="full"):
        folder.save(3, fail, first=True, meet=lambda: None)
    assert folder.latest() is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UsageError("a", hint="b"), UsageError),
        (CorruptError("key", "what", hint="h"), DataError),
        (TryAgainError("again"), TryAgainError),
    ],
)
def test_failures_are_told_by_another_process(folder: Folder, error: MaskregError, kind: type[Any]) -> None:
    assert folder.failure() is None
    folder.fail(error)
    folder.fail(UsageError("a later one"))
    told = folder.failure()
    assert isinstance(told, kind)
    assert (told.message, told.hint, told.code) == (error.message, error.hint, error.code)
    assert folder.failure() is None


def test_a_summary_says_that_it_is_complete(folder: Folder) -> None:
    assert folder.summary() is None
    folder.finish({"model": "x"})
    assert folder.summary() == {"model": "x"}
    assert json.loads((folder.path / "summary.json").read_text()) == {"model": "x"}


def test_a_run_that_has_saved_nothing_makes_way_for_another(folder: Folder) -> None:
    other = replace(SETUP, seed=1)
    folder.check(other)
    with folder.locked():
        folder.begin(other, PLACES)
    assert folder.setup() == other
    folder.save(1, lambda place: None, first=True, meet=lambda: None)
    with folder.locked(), pytest.raises(OutputExistsError, match="seed: 1 there, 0 now"):
        folder.begin(SETUP, PLACES)
    assert folder.setup() == other


def test_a_place_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotCreateError, match="file is no directory"):
        Folder(tmp_path / "file" / "under" / "run").begun()


def test_a_disk_that_becomes_full_while_a_checkpoint_is_written(folder: Folder) -> None:
    folder.save(1, lambda place: None, first=True, meet=lambda: None)

    def write(place: Path) -> None:
        (place / "state.pt").symlink_to("/dev/full")
        model = torch.nn.Linear(100, 100)
        optimizer = MaskedAdamW(model.named_parameters(), mask=Everything({"weight": (100, 100), "bias": (100,)}))
        save_state(place, model, optimizer, World(0, 1, torch.device("cpu")))

    with pytest.raises(NoSpaceError, match="00000002: the disk became full"):
        folder.save(2, write, first=True, meet=lambda: None)
    assert [path.name for path in (folder.path / "checkpoints").iterdir()] == ["00000001"]


def test_metrics_that_find_no_room(folder: Folder) -> None:
    (folder.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(NoSpaceError, match=r"metrics\.jsonl: the disk became full"):
        folder.step({"step": 1})

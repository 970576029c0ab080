from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from maskreg.errors import CannotCreateError, NoSpaceError, OutputExistsError, TryAgainError
from maskreg.train.retrain.folder import RunFolder
from maskreg.train.retrain.setup import RunSetup

CONFIG = {"max_steps": 100, "learning_rate": 3e-7, "seed": 0}
SETUP = RunSetup("sft", "s", "d", "m", control={"kind": "subset", "density": 0.5}, config=CONFIG)
STEPS = SETUP.steps
OTHER = replace(SETUP, config={**CONFIG, "seed": 1})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    with made.locked():
        made.begin(SETUP)
    return made


def save(folder: RunFolder, step: int) -> None:
    place = folder.checkpoints / f"checkpoint-{step}"
    place.mkdir()
    (place / "state").write_text(str(step))
    folder.complete_save(step)


def test_another_setup_is_refused_once_something_was_saved(folder: RunFolder) -> None:
    folder.check(SETUP)
    folder.begin(OTHER)
    folder.begin(SETUP)
    save(folder, 1)
    folder.check(SETUP)
    changed = replace(OTHER, dtype="float32")
    for call in (folder.check, folder.begin):
        with pytest.raises(OutputExistsError, match=r"dtype: 'stored' .*'float32' .*seed: 0 .*1 "):
            call(changed)


def test_only_one_process_works_in_it(folder: RunFolder) -> None:
    with folder.locked(), pytest.raises(TryAgainError), RunFolder(folder.path).locked():
        pass
    with folder.locked():
        pass


def test_a_run_that_another_process_begins_meanwhile_is_a_run(tmp_path: Path) -> None:
    def begin(folder: RunFolder) -> None:
        with folder.locked():
            folder.begin(SETUP)

    with ThreadPoolExecutor(1) as pool:
        for number in range(50):
            made = RunFolder(tmp_path / str(number))
            begun = pool.submit(begin, made)
            while not made.has_run():
                pass
            begun.result()


def test_a_folder_that_died_at_birth_may_be_begun_again(tmp_path: Path) -> None:
    made = RunFolder(tmp_path / "run")
    with made.locked():
        (made.path / ".run.json.0f3c9a17.draft").write_text("{")
        assert not made.has_run()
    (made.path / "other").touch()
    with pytest.raises(OutputExistsError, match=str(made.path)):
        made.has_run()
    with pytest.raises(CannotCreateError, match="other/run "):
        RunFolder(made.path / "other" / "run").has_run()


def test_steps_that_are_taken_again_are_forgotten(folder: RunFolder) -> None:
    first, second = {"processes": 1, "device": "cpu AVX2"}, {"processes": 2, "device": "cpu AVX2"}
    folder.resume(0, second)
    folder.resume(0, first)
    for step in (1, 2, 3):
        folder.append_metrics({"step": step})
        save(folder, step)
    file = folder.path / "metrics.jsonl"
    file.write_text(file.read_text() + '{"step"')  # of a process that was killed
    folder.resume(2, first)
    assert folder.metrics() == [{"step": 1}, {"step": 2}]
    assert sorted(entry.name for entry in folder.checkpoints.iterdir()) == ["checkpoint-1", "checkpoint-2"]
    assert folder.environments() == [{"after_step": 0, **first}]
    folder.resume(70, second)
    assert folder.environments() == [{"after_step": 0, **first}, {"after_step": 70, **second}]
    folder.resume(50, second)
    assert folder.environments() == [{"after_step": 0, **first}, {"after_step": 50, **second}]
    folder.begin(SETUP)
    assert folder.environments()[1]["after_step"] == 50


def test_a_save_counts_once_it_is_whole(folder: RunFolder) -> None:
    assert folder.latest_save(STEPS) is None
    for step in (3, 9, 12):
        save(folder, step)
    half = folder.checkpoints / "checkpoint-15"
    half.mkdir()
    assert folder.latest_save(STEPS) == (12, folder.checkpoints / "checkpoint-12")
    folder.begin(SETUP)
    assert not half.exists()


def test_shards_of_the_last_step_are_no_save_to_resume_from(folder: RunFolder) -> None:
    save(folder, STEPS - 1)
    save(folder, STEPS)
    assert folder.latest_save(STEPS) == (STEPS - 1, folder.checkpoints / f"checkpoint-{STEPS - 1}")
    last = folder.checkpoints / f"checkpoint-{STEPS}"
    (last / "model.safetensors").touch()
    assert folder.latest_save(STEPS) == (STEPS, last)
    folder.forget_after(0)
    save(folder, STEPS)
    assert folder.latest_save(STEPS) is None
    with pytest.raises(OutputExistsError, match=r"seed: 0 .*1 "):
        folder.check(OTHER)


def test_metrics_that_find_no_room(folder: RunFolder) -> None:
    (folder.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(NoSpaceError, match=r"metrics\.jsonl: "):
        folder.append_metrics({"step": 1})

"""What the comparison of masked retraining with its controls refuses, splits and infers."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

import pytest
import torch

from maskreg.errors import UsageError
from scripts.reproduce.__main__ import parsed, setting_of
from scripts.reproduce.folder import Folder
from scripts.reproduce.setting import MASK_SEED, SAMPLES_SEED, TRAINED_SHARE, TUNING_SEED, Problem, Setting, problems
from scripts.reproduce.statistics import Estimate, t975


def commuted(problem: Problem) -> Problem:
    """``# 5+3=`` of ``# 3+5=``; a difference as it is."""
    left, plus, right = problem.prompt.removeprefix("# ").removesuffix("=").partition("+")
    return Problem(f"# {right}+{left}=", problem.answer) if plus else problem


def test_no_held_out_sum_was_trained_the_other_way_round() -> None:
    training, held_out = problems()
    assert not set(map(commuted, held_out)) & set(training)
    every = {*training, *held_out}
    assert len(every) == len(training) + len(held_out) == 20 * 20 + 20 * 21 // 2
    assert len(training) / len(every) == pytest.approx(TRAINED_SHARE, abs=0.005)
    assert min(sum("+" in problem.prompt for problem in side) for side in (training, held_out)) > 100


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (10, 2.2281), (30, 2.0423), (120, 1.9799)],
)
def test_quantiles_of_student_are_those_of_tables(degrees: int, quantile: float) -> None:
    assert t975(degrees) == pytest.approx(quantile, abs=5e-5)


def test_any_number_of_seeds_has_an_interval() -> None:
    values = [math.sin(n) for n in range(25)]
    estimate = Estimate.of(values)
    assert estimate.mean == mean(values)
    assert estimate.half == pytest.approx(2.063899 * stdev(values) / 5, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "3", "4", "3"], "a seed is given twice"),
        (["--seeds", "0", str(MASK_SEED)], "seed 100 is that of the run that gives the OPD mask"),
        (["--seeds", str(TUNING_SEED)], "seed 101 is that of the tuning runs"),
        (["--seeds", str(SAMPLES_SEED)], "seed 102 is that of the samples"),
        (["--seeds", "-1"], r"seed -1 is not in 0\.\.2\^63-1"),
        (["--steps", "0"], "steps cannot be 0"),
        (["--batch", "-3"], "batch cannot be -3"),
        (["--lr", "nan"], "lr cannot be nan"),
        (["--workers", "0"], "workers cannot be 0"),
    ],
)
def test_numbers_are_refused_before_anything_is_written(arguments: list[str], words: str, tmp_path: Path) -> None:
    for name in ("source", "teacher"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=words):
        setting_of(parsed([str(tmp_path), "--out", str(tmp_path / "out"), *arguments]))


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
def test_results_of_other_problems_are_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(str(tmp_path))
    Folder(tmp_path / "out", setting, 1)
    Folder(tmp_path / "out", setting, 1)
    training, held_out = problems()
    monkeypatch.setattr("scripts.reproduce.setting.problems", lambda: (held_out, training))
    with pytest.raises(UsageError, match="results of another setting"):
        Folder(tmp_path / "out", setting, 1)


@pytest.mark.parametrize("arguments", [[], ["/nope"], ["--out", "/nope"]])
def test_nothing_is_installed_for_checkpoints_that_are_not_there(tmp_path: Path, arguments: list[str]) -> None:
    runner = tmp_path / "scripts" / "reproduce" / "run"
    runner.parent.mkdir(parents=True)
    shutil.copy("scripts/reproduce/run", runner)
    setup = tmp_path / "scripts" / "setup"
    setup.write_text("#!/bin/sh\ntouch installed\nexit 1\n")
    setup.chmod(0o755)
    done = subprocess.run([runner, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "installed").exists()) == (2, False)
    assert done.stderr.endswith("next: scripts/reproduce/run CHECKPOINTS --out .reproduce\n")

"""``extract --each``: the table of a run, and what is said of checkpoints that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Three checkpoints of a run."""
    for number in (1, 2, 10):
        steps = {name: moved(tensor, 0.1, number) for name, tensor in tensors().items()}
        make_checkpoint(tmp_path / "out" / f"step-{number}", steps)
    return tmp_path / "out"


def test_a_run_becomes_a_table_in_its_order(run: Run, pair: tuple[Path, Path], out: Path) -> None:
    command = ("extract", pair[0], "--each", out / "step-*", "--name", "team/run")
    dry = run(*command, "--dry-run").out
    assert [line.split()[3] for line in dry.splitlines()[1:]] == ["waiting"] * 3
    lines = run(*command).out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["team/run:step-1", "team/run:step-2", "team/run:step-10"]
    assert [line.split()[3] for line in lines[1:]] == ["new"] * 3
    rows = run(*command, "--json").json["checkpoints"]
    assert [row["status"] for row in rows] == ["kept"] * 3


def test_checkpoints_that_fail_are_named_after_the_table(run: Run, pair: tuple[Path, Path], out: Path) -> None:
    for number in (2, 10):
        path = out / f"step-{number}" / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    command = ("extract", pair[0], "--each", out / "step-*", "--name", "run")
    done = run(*command, status=65)
    assert [line.split()[3] for line in done.out.splitlines()[1:]] == ["new", "failed", "failed"]
    assert "error: run:step-2: target:" in done.err
    assert "2 checkpoints failed" in done.err
    assert "run:step-10: target:" in done.err
    rows = run(*command, "--json", status=65).json["checkpoints"]
    assert [row["status"] for row in rows] == ["kept", "failed", "failed"]
    assert rows[1]["error"]["code"] == "DIGEST_MISMATCH"


def test_one_checkpoint_without_a_source_is_compared_with_nothing(run: Run, out: Path) -> None:
    done = run("extract", "--each", out / "step-1", "--onto", "previous", "--name", "run")
    assert (done.out, "nothing yet to compare it with" in done.err) == ("", True)


def test_a_pattern_of_two_checkpoints_that_the_shell_expanded_is_refused(run: Run, out: Path) -> None:
    expanded = ("extract", "--each", out / "step-1", out / "step-2", "--name", "run")
    error = run(*expanded, "--onto", "previous", status=2).err
    assert f"{out / 'step-2'} would be the SOURCE; quote the pattern" in error
    assert run("list", "--json").json["names"] == []
    # For a pair by itself it is enough to leave out the option.
    assert run(*expanded, "--json").json["checkpoints"][0]["onto"] == str(out / "step-2")
    quoted = run("extract", "--each", out / "step-[12]", "--name", "run", "--onto", "previous", "--json").json
    assert [Path(row["onto"]).name for row in quoted["checkpoints"]] == ["step-1"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("SOURCE", "TARGET", "--each", "x-*"), "quote the pattern"),
        (("SOURCE", "--each", "x-*", "--on", "lab"), "--on does one pair"),
        (("SOURCE", "TARGET", "--onto", "previous"), "belong to --each"),
        (("SOURCE", "TARGET", "--dry-run"), "belong to --each"),
        (("SOURCE",), "Missing argument 'TARGET'"),
        ((), "Missing argument 'SOURCE'"),
        (("SOURCE", "a", "b"), "--each PATTERN"),
        (("--each", "x-*"), "name the source"),
        (("SOURCE", "--each", "x-*"), "no checkpoint matches"),
    ],
)
def test_a_line_that_makes_no_sense_is_answered(
    run: Run, pair: tuple[Path, Path], args: tuple[str, ...], words: str
) -> None:
    sides = {"SOURCE": str(pair[0]), "TARGET": str(pair[1])}
    status = 66 if "matches" in words else 2
    assert words in run("extract", *(sides.get(arg, arg) for arg in args), "--name", "run", status=status).err


def test_a_trajectory_takes_a_pattern(run: Run, pair: tuple[Path, Path], out: Path) -> None:
    rows = run("analyze", "--trajectory", pair[0], out / "step-*", "--json").json["checkpoints"]
    assert [Path(row["checkpoint"]).name for row in rows] == ["step-1", "step-2", "step-10"]
    assert "no checkpoint matches" in run("analyze", "--trajectory", pair[0], out / "stop-*", status=66).err

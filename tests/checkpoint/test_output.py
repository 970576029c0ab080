from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from maskreg.checkpoint import OutputPlan, clean_stale, open_checkpoint, plan_like, write_checkpoint
from maskreg.errors import OutputExistsError
from tests.checkpoints import SMALL_FILES, bf16, make_checkpoint


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "source", {name: bf16((8,), n) for n, name in enumerate("abcd")})


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def plan_for(source: Path) -> OutputPlan:
    with open_checkpoint(source) as checkpoint:
        return plan_like(checkpoint)


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def left_behind(name: str, pid: int, *, host: str = "", old: bool = False) -> str:
    host = host or re.sub(r"[^0-9A-Za-z_]", "_", os.uname().nodename)
    return f".{name}.maskreg-{host}-{pid}-0123abcd{'.old' if old else ''}"


def test_unfinished_work_of_the_dead_is_removed(tmp_path: Path) -> None:
    stale = tmp_path / left_behind("out", dead_pid())
    make_checkpoint(stale, {"w": bf16((4,))})
    stale_file = tmp_path / left_behind("out.safetensors", dead_pid())
    stale_file.touch()
    own_predecessor = tmp_path / left_behind("out", os.getpid())
    own_predecessor.mkdir()
    kept = [
        tmp_path / left_behind("out", os.getppid()),
        tmp_path / left_behind("out", dead_pid(), host="elsewhere"),
        tmp_path / ".out.maskreg-notes",
        tmp_path / "out",
    ]
    for path in kept:
        path.mkdir()
    assert set(clean_stale(tmp_path)) == {stale, stale_file, own_predecessor}
    assert set(tmp_path.iterdir()) == set(kept)
    assert clean_stale(tmp_path / "nowhere") == ()


def test_a_link_with_such_a_name_is_not_followed(tmp_path: Path) -> None:
    precious = make_checkpoint(tmp_path / "precious", {"w": bf16((4,))})
    (tmp_path / left_behind("out", dead_pid())).symlink_to(precious)
    assert len(clean_stale(tmp_path)) == 1
    assert len(contents(precious)) == 1 + len(SMALL_FILES)


def test_an_output_that_was_moved_aside_comes_back(source: Path, tmp_path: Path) -> None:
    aside = make_checkpoint(tmp_path / left_behind("out", dead_pid(), old=True), {"w": bf16((4,))})
    before = contents(aside)
    # The next run repairs before it looks, so without --force it still finds the output there.
    with pytest.raises(OutputExistsError), write_checkpoint(tmp_path / "out", plan_for(source)):
        pass
    assert contents(tmp_path / "out") == before
    assert not aside.exists()


def test_an_output_that_was_replaced_before_the_crash_goes(tmp_path: Path) -> None:
    aside = make_checkpoint(tmp_path / left_behind("out", dead_pid(), old=True), {"w": bf16((4,))})
    out = make_checkpoint(tmp_path / "out", {"v": bf16((4,))})
    before = contents(out)
    assert clean_stale(tmp_path) == (aside,)
    assert contents(out) == before
    assert not aside.exists()


CRASH = """
import os, signal, sys
from pathlib import Path
from maskreg.checkpoint import open_checkpoint, output, plan_like, write_checkpoint

source, out, when = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if when == "between":
    output.rename_new = die
elif when == "after":
    output.sync_folder = lambda path: die() if path == out.parent else None
with open_checkpoint(source) as checkpoint:
    plan = plan_like(checkpoint)
with write_checkpoint(out, plan, force=True) as writer:
    writer.write(bytes(40))
    if when == "writing":
        die()
    writer.write(bytes(24))
"""


@pytest.mark.parametrize("when", ["writing", "between", "after"])
def test_a_killed_process_leaves_the_old_or_the_new(source: Path, tmp_path: Path, when: str) -> None:
    out = make_checkpoint(tmp_path / "out", {"w": bf16((4,))}, files={})
    old = contents(out)
    child = subprocess.run([sys.executable, "-c", CRASH, source, out, when], check=False)
    assert child.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) > 2 or when == "between"
    clean_stale(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}
    if when == "after":
        assert set(contents(out)) == set(contents(source))
        assert (out / "model.safetensors").read_bytes().endswith(bytes(64))
    else:
        assert contents(out) == old

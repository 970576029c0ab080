from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from maskreg.checkpoint import output
from maskreg.checkpoint.output import clean_stale
from maskreg.checkpoint.writing import write_checkpoint
from maskreg.errors import CannotCreateError, OutputExistsError
from tests.checkpoint.conftest import contents, plan_for
from tests.checkpoints import SMALL_FILES, bf16, make_checkpoint
from tests.store.wrapped import Killed


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


CRASH = """
import os, signal, sys
from pathlib import Path
from maskreg.checkpoint import open_checkpoint, output
from maskreg.checkpoint.plan import plan_like
from maskreg.checkpoint.writing import write_checkpoint

source, out, when = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if when == "between":
    output.rename_new = die
elif when == "after":
    output.sync_folder = lambda path: die() if path == out.parent and (out / "config.json").exists() else None
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


MINE = {"notes.txt": b"do not lose", "optimizer.pt": b"state", "eval.json": b"{}", ".gitattributes": b"* lfs"}
"""Files of the user, in a folder that apply writes into."""


def earlier_output(out: Path) -> Path:
    """A checkpoint with the user's own files in it."""
    make_checkpoint(out, {"w": bf16((4,))}, files={"config.json": b"{}", **MINE})
    (out / "link").symlink_to("nowhere")
    return out


def write(source: Path, out: Path) -> tuple[str, ...]:
    with write_checkpoint(out, plan_for(source), force=True) as writer:
        writer.write(bytes(64))
    return writer.kept_files


def test_what_appears_at_the_last_moment_stays(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(output, "sync_folder", lambda _: earlier_output(out))
    with pytest.raises(OutputExistsError), write_checkpoint(out, plan_for(source)) as writer:
        writer.write(bytes(64))
    assert (out / "link").is_symlink()


def test_what_is_moved_aside_now_is_written(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = earlier_output(tmp_path / "out")
    moments: Iterator[Callable[[], object]] = iter([dict, partial(out.rename, tmp_path / "aside"), dict])
    monkeypatch.setattr(output, "sync_folder", lambda _: next(moments)())
    write(source, out)
    assert set(contents(out)) == set(contents(source)) | set(MINE)


def test_force_replaces_what_it_writes_and_nothing_else(source: Path, tmp_path: Path) -> None:
    out = earlier_output(tmp_path / "out")
    for _ in range(2):
        assert write(source, out) == tuple(sorted([*MINE, "link"]))
        assert {name: data for name, data in contents(out).items() if name in MINE} == MINE
        assert set(contents(out)) == set(contents(source)) | set(MINE)
        assert os.readlink(out / "link") == "nowhere"  # noqa: PTH115  # as text
        assert (out / "model.safetensors").read_bytes().endswith(bytes(64))
        assert contents(out)["config.json"] == SMALL_FILES["config.json"]
        assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}


@pytest.mark.parametrize(
    "name", ["model-00001-of-00002.safetensors", "generation_config.json", "merges.txt", "modeling_qwen.py"]
)
def test_files_of_another_model_that_would_stay_are_refused(source: Path, tmp_path: Path, name: str) -> None:
    out = earlier_output(tmp_path / "out")
    (out / name).write_bytes(b"mine")
    before = contents(out)
    with pytest.raises(CannotCreateError, match=rf"\({name}\)"):
        write(source, out)
    assert contents(out) == before
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}


CHANGES = ("link", "rename", "unlink", "rmdir", "fsync", "mkdir", "replace")


def die_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the next changes of the file system happen, and none after them; returns those that were tried."""
    tried: list[str] = []

    def patch(name: str) -> None:
        real = getattr(os, name)

        def change(*args: Any, **kwargs: Any) -> Any:
            tried.append(name)
            if len(tried) > steps:
                raise Killed
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, change)

    for name in CHANGES:
        patch(name)
    return tried


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_kill_at_any_step_loses_nothing(source: Path, tmp_path: Path, links: bool) -> None:
    """The old state or the new one, and the user's files in either, after the next run has repaired."""
    states: list[str] = []
    for steps in range(200):
        folder = tmp_path / str(steps)
        folder.mkdir()
        out = earlier_output(folder / "out")
        old = contents(out)
        with pytest.MonkeyPatch.context() as patched:
            if not links:
                patched.setattr(os, "link", no_links)
            tried = die_after(steps, patched)
            with suppress(Killed):
                write(source, out)
        output.live_work.clear()  # as in the process that comes after
        clean_stale(folder)
        after = contents(out)
        assert {name: after.get(name) for name in MINE} == MINE, tried
        is_new = set(after) == set(contents(source)) | set(MINE) and after["model.safetensors"].endswith(bytes(64))
        assert is_new or after == old, tried
        assert {path.name for path in folder.iterdir()} == {"out"}
        states.append("new" if is_new else "old")
        if len(tried) <= steps:
            break
    assert states == sorted(states, reverse=True)  # old, until from some step on it is new
    assert states.count("old") > 5
    assert states.count("new") > 5


def no_links(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def crashed(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output that was replaced, by a process that did not come to remove the old one; returns the old one."""
    earlier_output(folder / "out")
    with monkeypatch.context() as patched:
        patched.setattr(output, "retire", lambda *_: False)
        write(source, folder / "out")
    return next(path for path in folder.iterdir() if path.name.endswith(".old"))


def test_a_kill_while_repairing_loses_nothing(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for steps in range(100):
        folder = tmp_path / str(steps)
        folder.mkdir()
        aside = crashed(source, folder, monkeypatch)
        with monkeypatch.context() as patched:
            tried = die_after(steps, patched)
            with suppress(Killed):
                clean_stale(folder)
        clean_stale(folder)
        assert not aside.exists()
        assert set(contents(folder / "out")) == set(contents(source)) | set(MINE)
        assert {path.name for path in folder.iterdir()} == {"out"}
        if len(tried) <= steps:
            assert steps > 5
            return
    raise AssertionError("it never came to an end")


def test_a_file_that_changed_after_a_crash_stays_as_it_is(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = crashed(source, tmp_path, monkeypatch)
    out = tmp_path / "out"
    (out / "notes.txt").unlink()
    (out / "notes.txt").write_bytes(b"newer")
    assert clean_stale(tmp_path) == (aside,)
    assert contents(out) == {**contents(source), **MINE, "model.safetensors": ANY, "notes.txt": b"newer"}

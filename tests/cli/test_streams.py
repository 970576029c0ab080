"""Streams that are closed, full or cut, and outputs that are something else than a file."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.e2e.running import MASKREG

REF = "toy-opd:v1"


def shell(line: str) -> tuple[int, str]:
    command = line.replace("maskreg", shlex.quote(MASKREG), 1)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("maskreg list >&-", 0),
        ("maskreg list 2>&-", 0),
        ("maskreg list <&- >&- 2>&-", 0),
        ("maskreg show toy-opd:v1 --json >&-", 0),
        ("maskreg show no-such --json >&-", 66),
        ("maskreg show no-such 2>&-", 66),
        ("maskreg show toy-opd:v1 >/dev/full", 73),
        ("maskreg show toy-opd:v1 --json >/dev/full", 73),
        ("maskreg show no-such --json >/dev/full", 66),
        ("maskreg show no-such 2>/dev/full", 66),
        ("maskreg show no-such --json >/dev/full 2>/dev/full", 66),
        ("maskreg --version >/dev/full", 73),
        ("maskreg apply --source s -o o <&-", 65),
        ("maskreg import - <&-", 65),
    ],
)
def test_a_stream_that_takes_or_gives_nothing(artifact: str, line: str, status: int) -> None:
    ended, told = shell(line)
    assert (ended, "Traceback" in told, "Exception" in told) == (status, False, False), told
    assert told.count("error: ") == (status != 0 and not any(end in line for end in ("2>&-", "2>/dev/full")))


def test_broken_stdout_does_not_hide_in_a_buffer(artifact: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([MASKREG, "show", REF], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_archive_that_cannot_be_written_is_one_line(artifact: str) -> None:
    status, told = shell(f"maskreg export {REF} -o - >/dev/full")
    assert status == 73
    assert told.count("\n") == 1


def test_export_replaces_files_and_nothing_else(run: Run, artifact: str, tmp_path: Path) -> None:
    pipe, link, dangling, folder = (tmp_path / name for name in ("pipe", "link", "dangling", "folder"))
    os.mkfifo(pipe)
    (tmp_path / "kept").write_bytes(b"kept")
    link.symlink_to(tmp_path / "kept")
    dangling.symlink_to(tmp_path / "nothing")
    folder.mkdir()
    for place in (pipe, link, dangling, folder):
        before = place.lstat()
        assert "not a regular file" in run("export", REF, "-o", place, "--force", status=73).err
        run("export", REF, "-o", place, status=73)
        after = place.lstat()
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert (tmp_path / "kept").read_bytes() == b"kept"
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


def test_a_name_that_is_too_long(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    long = tmp_path / ("x" * 256)
    for command in (["export", REF], ["apply", REF]):
        run(*command, "-o", long, status=73)
    run("export", REF, "-o", long.with_name("x" * 255))
    run("import", long, status=66)
    run("extract", long, pair[1], "--name", "x", status=66)

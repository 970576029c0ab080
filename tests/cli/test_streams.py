"""Streams that are closed, full or cut, and outputs that are something else than a file."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from tests.e2e.running import MASKREG

REF = "toy-opd:v1"


def shell(line: str) -> tuple[int, str]:
    command = line.replace("maskreg", shlex.quote(MASKREG), 1)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("maskreg list <&- >&- 2>&-", 0),
        ("maskreg show toy-opd:v1 --json >&-", 0),
        ("maskreg show no-such 2>&-", 66),
        ("maskreg show toy-opd:v1 >/dev/full", 73),
        ("maskreg show no-such --json >/dev/full 2>/dev/full", 66),
        ("maskreg --version >/dev/full", 73),
        ("maskreg apply --source s -o o <&-", 65),
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

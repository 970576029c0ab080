"""What has become of a process: real ones that run, stand still, have ended, or are of somewhere else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from maskreg.registry.settling.process import Fate, Process

NAME_ITSELF = """
import json, sys
from maskreg.registry.settling.process import Process
print(json.dumps(Process.this().to_json()), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", NAME_ITSELF], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        yield child
        child.kill()


def named(child: subprocess.Popen[bytes]) -> Process:
    assert child.stdout is not None
    return Process.from_json(json.loads(child.stdout.readline()))


def test_a_process_that_runs_stands_still_continues_and_ends(child: subprocess.Popen[bytes]) -> None:
    process = named(child)
    assert process.pid == child.pid
    assert process.fate() is Fate.UNKNOWN
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert process.fate() is Fate.STOPPED
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie, which nobody has waited for
    assert process.fate() is Fate.ENDED
    child.wait()
    assert process.fate() is Fate.ENDED


def test_a_number_that_is_used_again_is_another_process() -> None:
    mine = Process.this()
    assert mine.fate() is Fate.UNKNOWN
    assert replace(mine, started=mine.started - 1).fate() is Fate.ENDED


@pytest.mark.parametrize("field", ["host", "boot", "namespace"])
def test_nothing_is_known_about_other_machines_boots_and_containers(field: str) -> None:
    assert replace(Process.this(), started=1, pid=2**22 + 1).fate() is Fate.ENDED
    assert replace(Process.this(), started=1, pid=2**22 + 1, **{field: "elsewhere"}).fate() is Fate.UNKNOWN


@pytest.mark.parametrize("value", [None, [], {}, {"pid": 0, "started": 1}, {"pid": 1}, {"pid": True, "started": 1}])
def test_what_is_no_process_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="process"):
        Process.from_json(value)

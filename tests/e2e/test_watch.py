"""What the demo shows while a command runs: its output as it comes, and seconds where there is none."""

import os
import sys
import time
from pathlib import Path

import pytest

from scripts.journey import progress, watch
from scripts.journey.install import PipStatus
from scripts.journey.watch import Watch

WAIT_THEN_SPEAK = "import time; print('begin', flush=True); time.sleep(2); print('end')"


def run(code: str, *, terminal: bool, capfdbinary: pytest.CaptureFixture[bytes]) -> tuple[int, str]:
    """Watch Python code; the exit code and what was on the screen."""
    watched = Watch("waiting")
    watched.terminal = terminal
    result = watched.run([sys.executable, "-c", code], os.environ, Path.cwd())
    return result, capfdbinary.readouterr().out.decode()


def test_a_silent_command_shows_its_seconds_and_wipes_them(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(watch, "SILENCE_ON_TERMINAL", 0.1)
    code, output = run(WAIT_THEN_SPEAK, terminal=True, capfdbinary=capfdbinary)
    assert code == 0
    assert output.startswith("begin\r\n\r\x1b[K  … waiting, ")
    assert output.endswith(" s\r\x1b[Kend\r\n")


def test_a_log_gets_a_line(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    monkeypatch.setattr(watch, "SILENCE_IN_LOG", 0.1)
    code, output = run(WAIT_THEN_SPEAK, terminal=False, capfdbinary=capfdbinary)
    assert code == 0
    first, *waiting, last = output.splitlines()
    assert (first, last) == ("begin", "end")
    assert waiting
    assert all(line.startswith("  … waiting, ") for line in waiting)


def test_half_a_line_is_not_broken(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    monkeypatch.setattr(watch, "SILENCE_IN_LOG", 0.1)
    code = "import time; print('50 %', end=' ', flush=True); time.sleep(1); print('100 %')"
    assert run(code, terminal=False, capfdbinary=capfdbinary) == (0, "50 % 100 %\n")


def test_a_command_has_a_terminal_where_people_watch(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code = "import sys; print(sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty())"
    assert run(code, terminal=True, capfdbinary=capfdbinary) == (0, "False True True\r\n")
    assert run(code, terminal=False, capfdbinary=capfdbinary) == (0, "False False False\n")


@pytest.mark.parametrize(
    ("code", "expected"), [("raise SystemExit(69)", 69), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_exit_codes_are_those_of_shells(code: str, expected: int, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(code, terminal=False, capfdbinary=capfdbinary)[0] == expected


def test_what_pip_does_is_said_in_words(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    watched = Watch("installing maskreg")
    watched.terminal = True
    status = PipStatus(watched, tmp_path / "log")
    for piece in (
        b"Collecting numpy>=2.0\n  Downloading numpy-2.3.1-cp311-x86_64.whl (16.",
        b"6 MB)\n  Building wheel ",
    ):
        status.show(piece)
    assert watched.label == "installing maskreg: downloading numpy (16.6 MB)"
    status.show(b"for maskreg (pyproject.toml): started\nnoise\n")
    assert watched.label == "installing maskreg: compiling its C kernels"
    assert "… installing maskreg: downloading numpy (16.6 MB), 0 s" in capfd.readouterr().out
    assert b"noise" in (tmp_path / "log").read_bytes()


def test_steps_in_a_log_are_said_now_and_then_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 4.0, 12.0, 16.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    steps = progress.Steps("teacher", 4)
    for step, loss in ((1, "loss 3"), (2, "loss 2"), (4, "loss 1")):
        steps.done(step, loss)
    assert (
        capsys.readouterr().err
        == "  teacher: step 2 of 4, loss 2, 12 s left\n  teacher: step 4 of 4, loss 1, 0 s left\n"
    )

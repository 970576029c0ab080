"""Starting a run, in this process or by torchrun in several, whose steps and failures are reported here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

from maskreg.errors import ConfigError, MaskregError
from maskreg.train.runs.endings import ended_early
from maskreg.train.runs.engine import StepListener, train
from maskreg.train.runs.folder import RunFolder

POLL_SECONDS = 0.2

_RENDEZVOUS = ("--standalone", "--rdzv", "--master", "--nnodes", "--node")
"""Prefixes of options that say where processes meet."""


def launch(folder: RunFolder, options: Sequence[str], listener: StepListener, *, lock: int) -> None:
    """Train the run of a folder to its end."""
    if not options:
        train(folder, folder.setup(), folder.paths(), listener)
        return
    spelled = [option.replace("_", "-") for option in options]
    standalone = [] if any(option.startswith(_RENDEZVOUS) for option in spelled) else ["--standalone"]
    command = [sys.executable, "-m", "maskreg.train.runs.launcher", str(folder.path), *standalone, *options]
    folder.take_failure()  # of an earlier attempt
    with folder.log.open("wb") as log:
        # In its own session, so that Ctrl-C reaches this process alone, which then ends torchrun in order.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[lock], start_new_session=True
        )
        try:
            _follow(folder, process, listener)
        finally:
            _end(process)
    failure = folder.take_failure()  # with --max-restarts, a run may succeed after one
    if process.returncode:
        raise failure or _unreported(folder, process.returncode)


def _follow(folder: RunFolder, process: subprocess.Popen[bytes], listener: StepListener) -> None:
    """Report the lines of ``metrics.jsonl`` as they appear, until torchrun ends."""
    latest = folder.latest_checkpoint()
    reported = latest[0] if latest else 0
    folder.truncate_metrics(reported)
    listener.begin(reported, folder.setup().steps)
    running = True
    while running:
        try:
            process.wait(POLL_SECONDS)
            running = False
        except subprocess.TimeoutExpired:
            pass
        for line in folder.metrics(after=reported):
            listener.step(line)
            reported = line["step"]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _unreported(folder: RunFolder, status: int) -> MaskregError:
    if status < 0:
        return ended_early("torchrun", status, "", folder.log)
    return ConfigError(f"torchrun ended with {status}: {_last_error(folder)}", hint=f"less {folder.log}")


def _last_error(folder: RunFolder) -> str:
    text = folder.log.read_text(errors="replace")
    lines = [line.strip() for line in text.splitlines() if any(letter.isalnum() for letter in line)]
    # Torchrun ends with a table of its processes, which does not say why.
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception): \S", line)]
    return (errors or lines or ["it printed nothing"])[-1]

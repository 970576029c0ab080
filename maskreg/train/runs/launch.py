"""Starting a run: here in one process, or by torchrun in many, whose steps and failures are then told here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

from maskreg.errors import ConfigError
from maskreg.train.runs.engine import Listener, train
from maskreg.train.runs.folder import Folder

POLL_SECONDS = 0.2

_MEETING = ("--standalone", "--rdzv", "--master", "--nnodes", "--node")
"""How options begin that say where processes meet."""


def launch(folder: Folder, options: Sequence[str], listener: Listener, *, lock: int) -> None:
    """Train what a folder says until its result is there.

    Args:
        folder: of a run that has begun.
        options: of torchrun; without any, this process trains.
        listener: hears of every step.
        lock: file that the processes keep open as long as any of them runs.

    Raises:
        MaskregError: what went wrong, in whichever process.
        ConfigError: torchrun failed before any process could say why.
    """
    if not options:
        train(folder, folder.setup(), folder.places(), listener)
        return
    spelled = [option.replace("_", "-") for option in options]
    alone = [] if any(option.startswith(_MEETING) for option in spelled) else ["--standalone"]
    command = [sys.executable, "-m", "torch.distributed.run", *alone, *options]
    command += ["-m", "maskreg.train.runs.worker", str(folder.path)]
    folder.failure()  # what an earlier attempt left word of is not told again
    with folder.log.open("wb") as log:
        # In a session of its own, so that Ctrl-C comes here alone and is passed on in good order.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[lock], start_new_session=True
        )
        try:
            _follow(folder, process, listener)
        finally:
            _end(process)
    if process.returncode:
        raise folder.failure() or ConfigError(
            f"torchrun ended with {process.returncode}: {_last_words(folder)}", hint=f"less {folder.log}"
        )


def _follow(folder: Folder, process: subprocess.Popen[bytes], listener: Listener) -> None:
    latest = folder.latest()
    told = latest[0] if latest else 0
    folder.go_back(told)
    listener.begin(told, folder.setup().steps)
    running = True
    while running:
        try:
            process.wait(POLL_SECONDS)
            running = False
        except subprocess.TimeoutExpired:
            pass
        for line in folder.metrics(after=told):
            listener.step(line)
            told = line["step"]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _last_words(folder: Folder) -> str:
    text = folder.log.read_text(errors="replace")
    lines = [line.strip() for line in text.splitlines() if any(letter.isalnum() for letter in line)]
    # Torchrun ends with a table of its processes, which does not say why.
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception): \S", line)]
    return (errors or lines or ["it said nothing"])[-1]

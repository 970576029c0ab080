"""Documentation that runs: the blocks of a page as one shell script, and whether they print what the page shows.

A page's ``console`` blocks run one after another in one shell, and a ``python`` block where it stands. What the page
shows below a command must be what it prints; ``…`` stands for anything within a line, or on a line of its own for any
lines. A command without output below it only has to succeed. A block that cannot run here has a comment in front of it
that says why::

    <!-- not run: needs a cluster -->
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^(?:<!-- not run: ([^>]+) -->\n+)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "\x1e"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        kind: the word after the fence.
        text: what is in it.
        reason: why it is not run; empty if it is.
    """

    kind: str
    text: str
    reason: str


@dataclass(frozen=True)
class Step:
    """A command of a page.

    Attributes:
        command: what the shell runs.
        shown: the lines that the page shows below it.
    """

    command: str
    shown: tuple[str, ...] = ()


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    return [Block(kind, body, reason.strip()) for reason, kind, body in _BLOCK.findall(text)]


def commands(block: Block) -> list[Step]:
    """The commands of a console block, each with the output shown below it."""
    steps: list[Step] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:]))
        elif line.startswith("> "):
            steps[-1] = Step(f"{steps[-1].command}\n{line[2:]}")
        else:
            steps[-1] = Step(steps[-1].command, (*steps[-1].shown, line))
    return steps


def run(text: str, folder: Path, environment: Mapping[str, str], programs: Path | None = None) -> None:
    """Run a page's blocks in a folder and compare what they print.

    Args:
        text: the page.
        folder: to work in.
        environment: variables that are set.
        programs: a folder whose programs run instead of installed ones.

    Raises:
        AssertionError: a command failed, or printed something else.
    """
    steps = list(_steps(text, folder))
    # What a page starts in the background ends with it, also where a command fails.
    lines = ["set -e", "exec 2>&1", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"]
    for number, step in enumerate(steps):
        lines += [f"printf '{_MARK}{number}\\n'", step.command]
    first = [] if programs is None else [str(programs)]
    path = os.pathsep.join([*first, str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder,
        # Compiled once, as where people have installed it, on every machine.
        env={**os.environ, **environment, "PATH": path, "COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    printed = [part.partition("\n")[2] for part in done.stdout.split(_MARK)[1:]]
    assert done.returncode == 0, f"{steps[len(printed) - 1].command}\n{printed[-1] if printed else ''}"
    for step, output in zip(steps, printed, strict=True):
        if step.shown:
            page = "\n".join(step.shown)
            assert _matches(step.shown, output), f"$ {step.command}\n--- the page\n{page}\n--- it prints\n{output}"


def _steps(text: str, folder: Path) -> Iterator[Step]:
    for number, block in enumerate(blocks(text)):
        if block.reason:
            continue
        if block.kind == "console":
            yield from commands(block)
        if block.kind == "python":
            (folder / f"block{number}.py").write_text(block.text)
            yield Step(f"python block{number}.py")


def _matches(shown: tuple[str, ...], printed: str) -> bool:
    # Follows all numbers of printed lines that the lines shown so far can stand for.
    lines = [line.rstrip() for line in printed.strip().splitlines()]
    counts = {0}
    for line in "\n".join(shown).strip().splitlines():
        if line.strip() == "…":
            counts = set(range(min(counts), len(lines) + 1))
        else:
            pattern = re.compile(re.escape(line.rstrip()).replace("…", ".*"))
            counts = {count + 1 for count in counts if count < len(lines) and pattern.fullmatch(lines[count])}
        if not counts:
            return False
    return len(lines) in counts

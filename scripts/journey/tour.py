"""The way of an update: Ada extracts and pushes it; Ben pulls it, rebuilds Ada's bytes, and judges it.

Every step is the line that a user would type, run by a shell in the demo's folder, with its own output.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.journey.pair import remove
from scripts.journey.watch import Watch

RESULTS = ("ada", "ada.toml", "ben", "ben.toml", "team", "patched", "report.html")
"""What a tour writes into its folder, and the next one deletes first."""


@dataclass(frozen=True)
class Step:
    """A step of the tour.

    Attributes:
        person: who types the lines.
        title: of the step.
        why: why it matters, in a sentence or two.
        lines: for the shell.
    """

    person: str
    title: str
    why: str
    lines: tuple[str, ...]


TOUR = (
    Step(
        "ada",
        "extract: keep what a run changed",
        "Ada distilled source into target. maskreg compares their bits and keeps which moved and to what.",
        ("maskreg extract source target --name sums-opd --family qwen3-demo --method opd --quiet",),
    ),
    Step(
        "ada",
        "show: see what it is",
        "How much moved, and where. Both checkpoints are named by the digests of their weights, not by paths.",
        ("maskreg show sums-opd",),
    ),
    Step(
        "ada",
        "push: share it",
        "A team's remote is a bucket (s3://…) or, here, a folder. There is no server to run.",
        ("maskreg remote add team team", "maskreg push sums-opd"),
    ),
    Step(
        "ben",
        "pull | apply: get the checkpoint from the update",
        "Ben has the same source and a registry of his own. The update travels, not the checkpoint; every tensor is "
        "checked before the result is visible.",
        ("maskreg remote add team team", "maskreg pull sums-opd | maskreg apply --source source -o patched"),
    ),
    Step(
        "ben",
        "compare the files: is it the same checkpoint?",
        "Not close, the same: weights, configuration and tokenizer, byte for byte.",
        ("diff -r patched target && echo identical",),
    ),
    Step(
        "ben",
        "compare: does another run move the same weights?",
        "target-seed1 learned from other prompts and samples. Any two updates share weights, because rounding to bf16 "
        "hides small changes of large ones; so the overlap stands beside what chance and rounding alone would share.",
        (
            "maskreg extract source target-seed1 --name sums-opd-seed1 --family qwen3-demo --method opd --quiet",
            "maskreg compare sums-opd sums-opd-seed1",
        ),
    ),
    Step(
        "ben",
        "report: a page to forward",
        "Plots, figures and their definitions in one file that needs no network.",
        ("maskreg report sums-opd --against sums-opd-seed1 -o report.html",),
    ),
)


class StepError(Exception):
    """A line of the tour failed.

    Attributes:
        code: its exit code.
    """

    def __init__(self, step: int, line: str, code: int) -> None:
        super().__init__(f"step {step} of {len(TOUR)} failed with exit {code}: {line}")
        self.code = code


def walk(folder: Path, binaries: Path, cache: Path) -> None:
    """Take all steps in ``folder``, which holds the pair.

    Args:
        folder: where the persons' registries and results go, in place of those of an earlier tour.
        binaries: the folder of the program ``maskreg``.
        cache: where libraries keep what they would otherwise leave in the home.

    Raises:
        StepError: a line failed; its own message is on the screen.
    """
    for name in RESULTS:
        remove(folder / name)
    person = ""
    for number, step in enumerate(TOUR, start=1):
        _print_heading(number, step)
        if step.person != person:
            person = step.person
            _print_line(person, f"export MASKREG_HOME=$PWD/{person} MASKREG_CONFIG=$PWD/{person}.toml")
        for line in step.lines:
            _print_line(person, line)
            code = Watch(" ".join(line.split()[:2])).run(
                ["sh", "-c", line], _environment(folder, binaries, cache, person), folder
            )
            if code:
                raise StepError(number, line, code)


def _environment(folder: Path, binaries: Path, cache: Path, person: str) -> Mapping[str, str]:
    return {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "MASKREG_HOME": str(folder / person),
        "MASKREG_CONFIG": str(folder / f"{person}.toml"),
        "MPLCONFIGDIR": str(cache / "matplotlib"),
        "PYTHONUNBUFFERED": "1",
    }


def _print_heading(number: int, step: Step) -> None:
    print(f"\n{_bold(f'{number}/{len(TOUR)}  {step.title}')}")
    print(
        textwrap.fill(
            step.why,
            width=min(76, shutil.get_terminal_size().columns - 1),
            initial_indent="     ",
            subsequent_indent="     ",
        ),
        flush=True,
    )


def _print_line(person: str, line: str) -> None:
    print(_bold(f"{person}$ {line}"), flush=True)


def _bold(text: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[1m{text}\x1b[0m"

"""What commands print, as transcripts: a file of ``golden`` for each command, with lines to type and what they gave.

A line is ``$ maskreg ...``, ``$ put FILE TEXT`` for a file that a line needs, ``$ sh ...`` for what happens to files
meanwhile, or ``$ as NAME`` for another user; ``#`` begins a comment. What goes to stderr follows with ``! `` in front,
and an exit code that is not 0 in brackets. ``pytest --update`` writes anew what the lines give; the difference is what
a reviewer reads.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from maskreg_cli.main import main

import maskreg
from maskreg.version import __version__
from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors
from tests.cli.test_causes import make_wrong

GOLDEN = Path(__file__).with_name("golden")
WITH_TORCH = ("analyze",)

VARIES = (
    # Work that takes long says so every 30 seconds.
    (re.compile(r"^! \w+: [^\n]*, \d+ s\n", re.MULTILINE), ""),
    (re.compile(r"sha256:[0-9a-f]{64}"), "sha256:WHOLE"),
    (re.compile(r"sha256:[0-9a-f]{12,}"), "sha256:SHORT"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}"), "UUID"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "DIGITS"),
    (re.compile(r"ed25519:[0-9a-f]+"), "ed25519:KEY"),
    (re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?"), "DATE"),
    (re.compile(r'(?<="size": )\d+'), "SIZE"),
    (re.compile(r" *\b[\d.,]+ (bytes|B|[KMGT]iB)\b"), " SIZE"),
    (re.compile(rf"\b[\w.-]+@({re.escape(platform.node())}|here)\b"), "USER"),
    (re.compile(re.escape(__version__)), "VERSION"),
)
"""What is not the same everywhere, and what stands for it."""


@pytest.fixture
def lab(
    request: pytest.FixtureRequest, run: Run, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with checkpoints, the artifacts ``toy:v1`` and ``two``, the mask ``mask``, and a remote called lab."""
    if request.node.callspec.params["command"] == "causes":
        make_wrong(tmp_path / "wrong")
    monkeypatch.chdir(tmp_path)
    for variable in ("MASKREG_HOME", "MASKREG_CONFIG"):
        monkeypatch.setenv(variable, os.environ[variable])  # put back at the end
    monkeypatch.setattr("maskreg.registry.registry.who", lambda: "ada@here")
    make_checkpoint(tmp_path / "second", {n: moved(t, 0.5, 50 + i) for i, (n, t) in enumerate(tensors().items())})
    for step in (1, 2, 10):
        steps = {name: moved(tensor, 0.1, step) for name, tensor in tensors().items()}
        make_checkpoint(tmp_path / "out" / f"step-{step}", steps)
    run("extract", "source", "target", "--name", "toy:v1", "--family", "toy", "--method", "opd", "--reversible")
    run("extract", "source", "second", "--name", "two", "--family", "toy", "--method", "rlvr")
    run("extract", "source", "second", "--name", "mask", "--mask-only")
    maskreg.remotes.add("lab", "lab")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(path.stem, marks=pytest.mark.torch if path.stem in WITH_TORCH else ())
        for path in sorted(GOLDEN.glob("*.txt"))
    ],
)
def test_a_transcript_is_what_is_printed(
    command: str, lab: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    path = GOLDEN / f"{command}.txt"
    before = path.read_text()
    now = "".join(_said(line, lab, capsys) for line in before.splitlines() if line.startswith(("$ ", "#")))
    if request.config.getoption("--update"):
        path.write_text(now)
    assert now == path.read_text()


def _said(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A line of a transcript, and what it gives."""
    words = shlex.split(line[2:]) if line.startswith("$ ") else []
    if words[:1] == ["put"]:
        Path(words[1]).write_text(words[2].replace("\\n", "\n"))
    if words[:1] == ["sh"]:
        subprocess.run(line[5:], shell=True, check=True)
    if words[:1] == ["as"]:
        os.environ["MASKREG_HOME"], os.environ["MASKREG_CONFIG"] = f"{folder}/{words[1]}", f"{folder}/{words[1]}.toml"
    if words[:1] != ["maskreg"]:
        return f"\n{line}\n" if line.startswith("#") else f"{line}\n"
    capsys.readouterr()
    status = main(words[1:])
    out, err = capsys.readouterr()
    text = out + "".join(f"! {part}\n" for part in err.splitlines()) + (f"[{status}]\n" if status else "")
    for path, word in ((os.environ["MASKREG_HOME"], "HOME"), (os.environ["MASKREG_CONFIG"], "CONFIG")):
        text = text.replace(path, word)
    text = text.replace(f"{folder}/", "").replace(str(folder), ".")
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return f"\n{line}\n" + "".join(f"{part.rstrip()}\n" for part in text.splitlines())

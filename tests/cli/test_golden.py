"""What commands print, as transcripts: a file of ``golden`` for each command, with lines to type and what they gave.

A line is ``$ maskreg ...``, ``$ put FILE TEXT`` for a file that a line needs, ``$ type TEXT`` for the standard input of
the next one, ``$ sh ...`` for what happens to files meanwhile, or ``$ as NAME`` for another user; ``#`` begins a
comment. ``SERVER`` is where a service listens, and ``ID`` the last identifier that was shown. What goes to stderr
follows with ``! `` in front, and an exit code that is not 0 in brackets. ``pytest --update`` writes anew what the lines
give; the difference is what a reviewer reads.
"""

from __future__ import annotations

import io
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from maskreg_cli.main import main

import maskreg
from maskreg.service.app import create_app
from maskreg.settings.credentials import credentials_path
from maskreg.version import __version__
from tests.checkpoints import make_checkpoint, moved
from tests.cli.conftest import Run, tensors
from tests.cli.test_causes import make_wrong
from tests.service.patching import site_in
from tests.service.serving import listening

GOLDEN = Path(__file__).with_name("golden")
WITH_TORCH = ("analyze", "retrain")
SERVED = ("accounts", "jobs")

VARIES = (
    # Work that takes long says so every 30 seconds.
    (re.compile(r"^! \w+: [^\n]*, \d+ s\n", re.MULTILINE), ""),
    (re.compile(r"sha256:[0-9a-f]{64}"), "sha256:WHOLE"),
    (re.compile(r"sha256:[0-9a-f]{12,}"), "sha256:SHORT"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}"), "UUID"),
    (re.compile(r"\bmr_[\w-]+"), "TOKEN"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "DIGITS"),
    (re.compile(r"ed25519:[0-9a-f]+"), "ed25519:KEY"),
    (re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?(\.\d+\+00:00)?)?"), "DATE"),
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
    match request.node.callspec.params["command"]:
        case "causes":
            make_wrong(tmp_path / "wrong")
        case "retrain":
            from tests.train.making import make_model, make_target, sums

            make_target(make_model(tmp_path / "model", seed=1), tmp_path / "trained")
            sums(tmp_path / "data.jsonl")
        case "serve":  # a server that starts after all would not end
            monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: pytest.fail("a server started"))
    monkeypatch.chdir(tmp_path)
    for variable in ("MASKREG_HOME", "MASKREG_CONFIG"):
        monkeypatch.setenv(variable, os.environ[variable])  # put back at the end
    monkeypatch.setattr(sys, "stdin", sys.stdin)
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


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a service with jobs, for the transcripts that need one."""
    if request.node.callspec.params["command"] not in SERVED:
        yield "127.0.0.1:9"
        return
    service = site_in(tmp_path / "site").service
    with closing(service), listening(create_app(service)) as url:
        yield url.removeprefix("http://")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(path.stem, marks=pytest.mark.torch if path.stem in WITH_TORCH else ())
        for path in sorted(GOLDEN.glob("*.txt"))
    ],
)
def test_a_transcript_is_what_is_printed(
    command: str, lab: Path, server: str, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    path = GOLDEN / f"{command}.txt"
    places = {"SERVER": server}
    typed = [line for line in path.read_text().splitlines() if line.startswith(("$ ", "#"))]
    now = "".join(_said(line, lab, places, capsys) for line in typed)
    if request.config.getoption("--update"):
        path.write_text(now)
    assert now == path.read_text()


def _said(line: str, folder: Path, places: dict[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    """A line of a transcript, and what it gives."""
    words = shlex.split(line[2:]) if line.startswith("$ ") else []
    words = [re.sub("|".join(places), lambda match: places[match[0]], word) for word in words]
    if words[:1] == ["type"]:
        sys.stdin = io.StringIO(words[1])
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
    home, config = os.environ["MASKREG_HOME"], os.environ["MASKREG_CONFIG"]
    for path, word in ((home, "HOME"), (config, "CONFIG"), (str(credentials_path()), "CREDENTIALS")):
        text = text.replace(path, word)
    text = text.replace(f"{folder}/", "").replace(str(folder), ".").replace(places["SERVER"], "SERVER")
    if found := re.findall(r"\b[0-9a-f]{16}\b", text):
        places["ID"] = found[-1]
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return f"\n{line}\n" + "".join(f"{part.rstrip()}\n" for part in text.splitlines())

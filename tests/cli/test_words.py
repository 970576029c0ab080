"""Words that people gave to an artifact: what may be written, and how it looks at a terminal."""

from __future__ import annotations

import json
import os
import shutil
import string
from pathlib import Path

import pytest

from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from tests.cli.conftest import Run
from tests.cli.terminal import at_terminal

REF = "toy-opd:v1"
INVISIBLE = "a\u200bb\u200dc\u2060d\ufe0fe\U000e0041f\u00adg\u3164h"
EVIL = "\x1b]0;owned\x07\x9b2J\nnext\rline\u202egpj.exe" + INVISIBLE
SHOWN = "\\u202egpj.exea\\u200bb\\u200dc\\u2060d\\ufe0fe\\U000e0041f\\xadg\\u3164h"


@pytest.mark.parametrize(
    "words",
    [
        ["--family", "a\x1b[2J"],
        ["--method", "a\nb"],
        ["--license", "a\x07"],
        ["--description", "a\x9b2J"],
        ["--description", "a\u202eb"],
        *(["--description", f"a{character}"] for character in INVISIBLE if not character.isascii()),
        ["--meta", "a\u200b=b"],
        ["--meta", "a\x1b=b"],
        ["--meta", "a=b\r"],
        ["--family", "x" * 201],
        ["--method", "x" * 201],
        ["--license", "x" * 201],
        ["--description", "x" * 4097],
        ["--meta", "x" * 1025 + "=y"],
        ["--meta", "y=" + "x" * 1025],
    ],
    ids=lambda words: f"{words[0]} {len(words[1])} {words[1][:6]!a}",
)
def test_words_that_are_refused(run: Run, artifact: str, pair: tuple[Path, Path], words: list[str]) -> None:
    told = run("annotate", REF, *words, status=2).err
    assert "character" in told
    run("extract", *pair, "--name", "other", *words, status=2)
    assert run("list", "-q").out == f"{REF}\n"


def test_words_of_any_language_and_of_full_length_are_taken(run: Run, artifact: str) -> None:
    run("annotate", REF, "--family", "é漢\u3000字" * 40, "--description", "x" * 4096, "--meta", "k=" + "x" * 1024)
    assert "é漢\u3000字" in run("show", REF).out


@pytest.fixture
def evil(artifact: str) -> None:
    """Unchecked words, as a foreign registry can hold them."""
    card = Card(EVIL, EVIL, EVIL, EVIL, {EVIL: EVIL})
    with Registry.local(Settings.load()) as here:
        here.publish(Ref.parse(REF), Digest(artifact), card=card)


@pytest.mark.usefixtures("evil")
def test_words_from_elsewhere_do_not_reach_the_terminal(run: Run) -> None:
    for line in (["show", REF], ["list"], ["annotate", REF, "--license", "mit"]):
        out = run(*line).out
        assert f"\\x1b]0;owned\\x07\\x9b2J\\nnext\\rline{SHOWN}" in out
        assert not set(out) & (set(EVIL) - {"\n"} - set(string.printable[:95]))
    assert run("list").out.count("\n") == 2
    assert json.loads(run("show", REF, "--json").out)["card"]["family"] == EVIL
    run("annotate", REF, "--meta", f"{EVIL}=")
    assert "meta" not in run("show", REF, "--json").json["card"]


def test_a_path_is_escaped_at_a_terminal_only(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MASKREG_CONFIG", str(tmp_path / INVISIBLE / "config.toml"))
    assert run("config", "path").out == f"{tmp_path / INVISIBLE / 'config.toml'}\n"
    shown = at_terminal(200, "config", "path")
    assert SHOWN.removeprefix("\\u202egpj.exe") in shown
    assert shown.isascii()


def test_a_narrow_terminal_shows_whole_references(run: Run, artifact: str) -> None:
    middle, long = "team/" + "m" * 40 + ":v1", "team/" + "n" * 120 + ":v1"
    run("tag", REF, middle)
    narrow = at_terminal(80, "list")
    assert middle in narrow
    assert REF in narrow
    assert "density" in narrow
    assert "created" not in narrow
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines()[1:])) <= 80
    assert "created" in at_terminal(200, "list")
    run("tag", REF, long)
    assert long in at_terminal(80, "list")


def test_without_a_remote_no_hint_says_pull(run: Run, artifact: str, tmp_path: Path) -> None:
    shutil.rmtree(Path(os.environ["MASKREG_HOME"]) / "artifacts" / "sha256" / artifact[7:])
    wanted = "extract it again, or add a remote: maskreg remote add NAME URL"
    assert f"next: {wanted}\n" in run("show", REF, status=66).err
    assert run("apply", REF, "-o", tmp_path / "o", "--json", status=66).json["error"]["hint"] == wanted
    run("remote", "add", "lab", tmp_path / "lab")
    assert "next: maskreg pull" in run("show", REF, status=66).err

"""What people see of words from elsewhere."""

from __future__ import annotations

import json
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
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / INVISIBLE))
    assert run("config", "get", "home").out == f"{tmp_path / INVISIBLE}\n"
    shown = at_terminal(200, "config", "get", "home")
    assert SHOWN.removeprefix("\\u202egpj.exe") in shown
    assert shown.isascii()

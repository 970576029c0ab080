"""What people see at terminals of 60, 80 and 140 columns, of a model with 80 layers, and of words from elsewhere."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path

import pytest

from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.settings import Settings
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.cli.conftest import Run
from tests.cli.terminal import at_terminal

LAYERS = 80
NAME = "model.layers.{}.post_attention_layernorm.weight"


@pytest.fixture
def deep(run: Run, tmp_path: Path) -> None:
    """Two masks of a model with 80 layers, in which later layers move more."""
    source = {"lm_head.weight": bf16((50, 16), 1)}
    source |= {f"model.layers.{layer}.mlp.up_proj.weight": bf16((32, 16), layer) for layer in range(LAYERS)}
    source |= {NAME.format(layer): bf16((16,), layer) for layer in range(LAYERS)}
    before = make_checkpoint(tmp_path / "source", source)
    for seed, name in enumerate(("one", "two")):
        target = {
            key: moved(tensor, 0.1 + n % LAYERS / 200, 1000 * seed + n)
            for n, (key, tensor) in enumerate(source.items())
        }
        run("extract", before, make_checkpoint(tmp_path / name, target), "--name", name, "--mask-only")


At = Callable[..., str]


@pytest.fixture
def at(run: Run, monkeypatch: pytest.MonkeyPatch) -> At:
    """What a command prints in so many columns."""

    def call(columns: int, *args: str) -> str:
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            return run(*args).out

    return call


@pytest.mark.usefixtures("deep")
def test_every_line_fits_and_no_word_is_broken(at: At) -> None:
    for command in (("show", "one", "--by", "tensor"), ("compare", "one", "two", "--by", "tensor", "--verbose")):
        widest = set(at(400, *command).split())
        for columns in (60, 140):
            told = at(columns, *command)
            assert max(map(len, told.splitlines())) <= columns, (command, columns)
            assert command[0] == "show" or set(told.split()) == widest, (command, columns)


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

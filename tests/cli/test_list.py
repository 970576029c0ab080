"""What ``list`` takes and shows: whole references and patterns, chosen fields, and what an empty one says."""

from __future__ import annotations

import sys

import pytest

from tests.cli.conftest import Run

NAMES = {
    "smol/adam": ["smol/adam:v2", "smol/adam:v1"],
    "smol/adam:v1": ["smol/adam:v1"],
    "smol/*": ["smol/adam:v2", "smol/adam:v1"],
    "smol/": ["smol/adam:v2", "smol/adam:v1"],
    "s*/ada?:v[2-9]": ["smol/adam:v2"],
    "adam:v1": ["smol/adam:v1"],
    "default/": ["toy-opd:v1"],
    "toy-opd:v1": ["toy-opd:v1"],
    ":v1": ["smol/adam:v1", "toy-opd:v1"],
    "*": ["smol/adam:v2", "smol/adam:v1", "toy-opd:v1"],
    "smol": ["smol/adam:v2", "smol/adam:v1"],
    "smol/ :v2": ["smol/adam:v2"],
    "zzz smol/": [],
    "smol/ada": [],
    "t/*": [],
}


@pytest.fixture
def names(run: Run, artifact: str) -> str:
    """Three names of one artifact."""
    run("tag", "toy-opd:v1", "smol/adam:v1", "smol/adam:v2")
    return artifact


def test_a_text_with_marks_is_compared_with_the_whole_reference(run: Run, names: str) -> None:
    for text, expected in NAMES.items():
        assert run("list", *text.split(), "-q", "--sort", "created").out.split() == expected, text
    assert run("list", "smol/*", "-q", "--limit", "1").out == "smol/adam:v2\n"
    assert len(run("list", names[:19], "-q").out.split()) == 3
    assert run("list", f"smol/adam:v1@{names}", "-q").out == "smol/adam:v1\n"
    assert run("list", "smol/adam@sha256:0000000", "-q").out == ""
    run("list", "smol/adam@latest", status=2)


def test_columns_that_a_terminal_has_no_room_for_are_named(
    run: Run, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    narrow = run("list", "toy")
    assert artifact[:19] not in narrow.out
    assert ": digest, " in narrow.err
    step = narrow.err.partition("next: ")[2].split()
    assert step[:4] == ["maskreg", "list", "toy", "--columns"]
    whole = run(*step[1:])
    assert artifact[:19] in whole.out
    assert "left out" not in whole.err
    monkeypatch.setenv("COLUMNS", "200")
    assert "left out" not in run("list").err

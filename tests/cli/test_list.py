"""What ``list`` takes and shows: whole references and patterns, chosen fields, and what an empty one says."""

from __future__ import annotations

import sys
from pathlib import Path

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
    assert "is not the beginning of a digest" in run("list", "smol/adam@latest", status=2).err


def test_nothing_says_so_with_a_command_and_ends_well(
    run: Run, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = run("list", "smol/adm")
    assert told.err == (
        "nothing in local matches smol/adm; similar: smol/adam:v2, smol/adam:v1\n  next: maskreg list adam\n"
    )
    assert len(run("list", "adam", "-q").out.split()) == 2
    assert run("list", "zzz").err == "nothing in local matches zzz\n  next: maskreg list\n"
    assert run("list", "zzz", "-q").err == ""
    nothing = run("list", "--kind", "mask", "--json").json
    assert (nothing["names"], nothing["left_out"], nothing["hint"]) == ([], [], "maskreg list")
    assert nothing["error"]["facts"] == {"remote": ""}
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "empty"))
    assert "next: maskreg extract SOURCE TARGET --name NAME" in run("list").err
    run("remote", "add", "lab", tmp_path / "lab")
    assert "next: maskreg list --remote lab" in run("list").err
    assert "lab has no artifacts\n  next: maskreg push REF --remote lab" in run("list", "--remote", "lab").err


def test_fields_are_chosen_by_name(run: Run, names: str) -> None:
    document = run("list", "toy-opd:v1", "--json").json["names"][0]
    assert run("list", "toy-opd:v1", "--columns", "ref,numel,rlvr-overlap").out == (
        f"ref\tnumel\trlvr_overlap\ntoy-opd:v1\t{document['numel']:,}\t-\n"
    )
    assert run("list", "toy-opd:v1", "--columns", "tag", "-q").out == "v1\n"
    line = run("list", "toy-opd:v1", "--format", r"{ref}\t{digest} {density:.3f} {rlvr_overlap} {size:>8}|{{}}").out
    assert line == f"toy-opd:v1\t{names} {document['density']:.3f} - {document['size']:>8}|{{}}\n"


def test_every_field_can_be_shown(run: Run, names: str) -> None:
    from maskreg_cli.list import FIELDS

    document = run("list", "toy-opd:v1", "--json").json["names"][0]
    document["created"] = document["at"]
    for field in FIELDS:
        assert run("list", "toy-opd:v1", "--columns", field).out.splitlines()[0] == field
        value = document[field]
        assert (
            run("list", "toy-opd:v1", "--format", f"{{{field}}}").out == ("-" if value is None else str(value)) + "\n"
        )
    shown = run("list", "--help").out.replace(",", " ").split()
    assert set(FIELDS) <= {word.rstrip(".") for word in shown}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--columns", "ref,nothing"], "there is no field 'nothing'; fields: ref, project"),
        (["--columns", ""], "there is no field ''"),
        (["--format", "{ref.__class__}"], "there is no field 'ref.__class__'"),
        (["--format", "{ref[0]}"], "there is no field 'ref[0]'"),
        (["--format", "{}"], "there is no field ''"),
        (["--format", "{ref"], "expected '}'"),
        (["--format", "{ref!r}"], "only a field and a format"),
        (["--format", "{size:{nnz}}"], "only a field and a format"),
        (["--format", "{density:d}"], "density:d:"),
        (["--format", "{ref}", "--columns", "ref"], "choose one of"),
        (["--format", "{ref}", "--json"], "choose one of"),
    ],
)
def test_what_is_no_field_is_refused(run: Run, names: str, options: list[str], why: str) -> None:
    assert why in run("list", *options, status=2).err


def test_columns_that_a_terminal_has_no_room_for_are_named(
    run: Run, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    narrow = run("list", "toy")
    assert artifact[:19] not in narrow.out
    assert "columns left out for want of room: digest, " in narrow.err
    step = narrow.err.partition("next: ")[2].split()
    assert step[:3] == ["maskreg", "list", "--columns"]
    assert step[-1] == "toy"
    whole = run(*step[1:])
    assert artifact[:19] in whole.out
    assert "left out" not in whole.err
    monkeypatch.setenv("COLUMNS", "200")
    assert "left out" not in run("list").err

"""What ``maskreg gc`` says before it deletes, and where it refuses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from maskreg.digest import Digest
from maskreg.registry.collect import Garbage
from tests.cli.conftest import Run


def test_what_goes_is_said_before_and_after(run: Run, artifact: str) -> None:
    run("tag", "toy-opd:v1", "team/best:v2")
    for name in ("toy-opd:v1", "team/best:v2"):
        run("rm", "-y", name)
    rehearsed = run("gc", "-n", "--grace", "0s")
    said = f"{artifact}  ", ", last written 2", ", was team/best:v2, toy-opd:v1\n"
    assert all(words in rehearsed.err for words in ("would delete " + said[0], *said[1:]))
    plan = run("gc", "-n", "--grace", "0s", "--json")
    done = run("gc", "--grace", "0s", "--json")
    assert all(words in done.err for words in ("deleting " + said[0], *said[1:]))
    assert plan.json["collected"] == done.json["collected"]
    (gone,) = done.json["collected"]
    assert (gone["digest"], gone["names"], gone["complete"]) == (artifact, ["team/best:v2", "toy-opd:v1"], True)
    assert gone["modified"].startswith("20")


def test_without_any_name_nothing_is_deleted_until_that_is_trusted(run: Run, artifact: str) -> None:
    for folder in ("refs", "names"):
        shutil.rmtree(Path(os.environ["MASKREG_HOME"]) / folder)
    refused = run("gc", "--grace", "0s", status=65)
    assert "lists no name at all, and 1 artifact is there; nothing was deleted" in refused.err
    assert "next: maskreg gc --trust-listing --dry-run" in refused.err
    assert artifact in run("gc", "--grace", "0s", "--trust-listing", "-n").out
    assert "never had a tag, as far as is known" in run("gc", "--grace", "0s", "--trust-listing").err


def test_a_run_that_was_overtaken_is_no_success(run: Run, artifact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Garbage((), (Digest(artifact),), 0, 0, False, overtaken=(Digest(artifact),))
    monkeypatch.setattr("maskreg.workspace.verbs.gc.collect", lambda *_, **__: report)
    ended = run("gc", status=75)
    assert "stood still while it deleted" in ended.err
    assert ended.err.endswith("next: maskreg verify --all\n")
    assert run("gc", "--json", status=75).json["overtaken"] == [artifact]

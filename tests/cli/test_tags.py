"""What the commands say about logs that went back, tags that must not move, and names that come back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run

LOG = "lab/refs/default/toy-opd/v1"


@pytest.fixture
def lab(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str, str]:
    """A remote with two entries of a tag, as seen by a reader of the second; and the two digests."""
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", "toy-opd:v1")
    later = run("extract", pair[1], pair[0], "--name", "toy-opd:v1", "--force", "--json").json["digest"]
    run("push", "toy-opd:v1")
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "bob"))
    run("pull", "toy-opd:v1", "--json")
    return tmp_path / LOG, artifact, later


def test_what_is_not_there_says_where_to_look(run: Run, lab: tuple[Path, str, str]) -> None:
    absent = "sha256:" + "a" * 64
    steps = {
        ("tag", f"toy-opd:v1@{absent}", "b"): ("log toy-opd:v1", 66),
        ("tag", f"nobody@{absent}", "b"): ("list", 66),
        ("show", f"nobody@{absent}", "--remote", "lab"): ("list --remote lab", 66),
        ("show", f"toy-opd:v1@{absent}", "--remote", "lab"): ("log toy-opd:v1 --remote lab", 66),
        ("restore", "toy-opd:v1"): ("log toy-opd:v1", 2),
    }
    for command, (step, status) in steps.items():
        assert f"next: maskreg {step}\n" in run(*command, status=status).err
        run(*step.split())


def test_a_rollback_is_damage_in_the_report_of_one_tag(run: Run, lab: tuple[Path, str, str]) -> None:
    log, first, _ = lab
    (log / f"{2:020d}.json").unlink()
    everything = run("verify", "--all", "--remote", "lab", "--json", status=65).json["damaged"]
    report = run("verify", "toy-opd:v1", "--remote", "lab", "--json", status=65).json
    assert report["damaged"] == everything
    assert (report["ok"], report["tags"], report["entries"], report["artifacts"]) == (False, 1, 1, 1)
    told = run("verify", "toy-opd:v1", "--remote", "lab", status=65)
    assert f"{LOG.removeprefix('lab/')}/{2:020d}.json: toy-opd:v1 on lab went back" in told.out
    assert "next: ask " in told.out
    assert "checked 1 artifact" in told.err
    pinned = run("verify", f"toy-opd:v1@{first}", "--remote", "lab", "--json", status=65).json
    assert (pinned["damaged"], pinned["artifacts"]) == (everything, 1)
    (log / f"{1:020d}.json").unlink()
    gone = run("verify", "toy-opd:v1", "--remote", "lab", "--json", status=65).json
    assert (len(gone["damaged"]), gone["artifacts"]) == (1, 0)


def test_a_damaged_log_is_damage_in_the_report_of_one_tag(run: Run, artifact: str) -> None:
    entry = Path(os.environ["MASKREG_HOME"], LOG.removeprefix("lab/"), f"{1:020d}.json")
    whole = entry.read_bytes()
    entry.write_bytes(whole.replace(b"toy", b"TOY", 1))
    damaged = run("verify", "toy-opd:v1", "--json", status=65).json["damaged"]
    assert [row["key"] for row in damaged] == [f"{LOG.removeprefix('lab/')}/{1:020d}.json"]
    entry.unlink()
    (lost,) = run("verify", "toy-opd:v1", "--json", status=65).json["damaged"]
    assert "is missing from the store" in lost["fault"]


def test_all_tags_of_a_remote_that_went_back_are_taken_at_once(
    run: Run, lab: tuple[Path, str, str], tmp_path: Path
) -> None:
    log, _, _ = lab
    step = "maskreg remote check lab --allow-rollback"
    for tag in ("v2", "same"):
        run("tag", "toy-opd:v1", tag)
        run("push", f"toy-opd:{tag}")
    shutil.copytree(tmp_path / "lab", tmp_path / "backup")
    for tag in ("v1", "v2"):
        run("annotate", f"toy-opd:{tag}", "--description", "later")
        run("push", f"toy-opd:{tag}")
    (log / f"{3:020d}.json").unlink()
    assert step not in run("pull", "toy-opd:v1", status=65).err  # it is this one alone
    shutil.rmtree(tmp_path / "lab")
    (tmp_path / "backup").rename(tmp_path / "lab")
    for command in (["pull", "toy-opd:v1"], ["push", "toy-opd:v2"], ["show", "toy-opd:v1", "--remote", "lab"]):
        told = run(*command, status=65).err
        assert f"maskreg {' '.join(command)} --allow-rollback takes the tag as it is now; for all 2 tags" in told
        assert told.endswith(f"{step}\n")
    for command in (["verify", "--all", "--remote", "lab"], ["verify", "toy-opd:v2", "--remote", "lab"]):
        assert f"; for all 2 tags that went back: {step}\n" in run(*command, status=65).out
    taken = run(*step.split()[1:], "--json")
    assert [line.partition(" went back")[0] for line in taken.err.splitlines()] == [
        "note: accepted: toy-opd:v1 on lab",
        "note: accepted: toy-opd:v2 on lab",
    ]
    assert [f"note: accepted: {text}" for text in taken.json["accepted"]] == taken.err.splitlines()
    run("verify", "--all", "--remote", "lab")
    assert run(*step.split()[1:], "--json").json["accepted"] == []


def test_the_source_is_never_offered_for_replacement(run: Run, pair: tuple[Path, Path], artifact: str) -> None:
    for words in (["apply"], ["merge", "--method", "negate"], ["convert", "--to", "slime"]):
        refused = run(*words, "toy-opd:v1", "--source", pair[0], "-o", pair[0], status=73)
        assert "--force" not in refused.err

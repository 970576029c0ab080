"""What the commands say about logs that went back, tags that must not move, and names that come back."""

from __future__ import annotations

import json
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


def test_a_log_that_went_back_is_refused_and_can_be_taken(run: Run, lab: tuple[Path, str, str]) -> None:
    log, first, second = lab
    (log / f"{2:020d}.json").unlink()
    for command in (["pull", "toy-opd:v1"], ["push", "toy-opd:v1"], ["show", "toy-opd:v1", "--remote", "lab"]):
        refused = run(*command, status=65).err
        assert "toy-opd:v1 on lab went back: this machine has seen entry 2" in refused
        assert second[:19] in refused
        assert first[:19] in refused
        assert f"maskreg {' '.join(command)} --allow-rollback takes the tag" in refused
    assert run("show", "toy-opd:v1", "--json").json["digest"] == second
    found = run("doctor", "--json", status=1).json
    assert [row["status"] for row in found if row["what"] == "remote lab"] == ["bad"]
    assert any("went back" in row["detail"] for row in found)
    taken = run("pull", "toy-opd:v1", "--allow-rollback")
    assert "note: accepted: toy-opd:v1 on lab went back" in taken.err
    assert json.loads(taken.out.splitlines()[0])["digest"] == first
    assert run("show", "toy-opd:v1", "--json").json["digest"] == first
    run("pull", "toy-opd:v1")
    run("doctor")


def test_a_failed_pull_tells_the_pipe(run: Run, lab: tuple[Path, str, str]) -> None:
    log, _, _ = lab
    for entry in log.iterdir():
        entry.unlink()
    end = json.loads(run("pull", "toy-opd:v1", status=65).out.splitlines()[-1])
    assert (end["code"], end["error"]["exit"]) == ("ROLLED_BACK", 65)
    assert "now it has no such tag" in end["error"]["message"]


def test_pushing_and_showing_can_take_it_too(run: Run, lab: tuple[Path, str, str]) -> None:
    log, first, second = lab
    (log / f"{2:020d}.json").unlink()
    assert second[:19] in run("push", "toy-opd:v1", "--allow-rollback").out
    (log / f"{2:020d}.json").unlink()
    assert run("show", "toy-opd:v1", "--remote", "lab", "--allow-rollback", "--json").json["digest"] == first
    (entry,) = run("log", "toy-opd:v1", "--remote", "lab", "--json").json
    assert (entry["n"], entry["digest"]) == (1, first)
    for command in ("show", "log"):
        run(command, "toy-opd:v1", "--allow-rollback", status=2)


def test_a_remote_that_was_emptied_is_refused_until_it_is_taken(
    run: Run, lab: tuple[Path, str, str], tmp_path: Path
) -> None:
    (tmp_path / "lab").rename(tmp_path / "old")
    (tmp_path / "lab").mkdir()
    for command in (["list", "--remote", "lab"], ["verify", "--all", "--remote", "lab"], ["remote", "check", "lab"]):
        assert "maskreg remote check lab --allow-rollback" in run(*command, status=65).err
    assert run("remote", "check", "lab", "--json", status=65).json["error"]["code"] == "ROLLED_BACK"
    run("pull", "toy-opd:v1", status=65)
    assert "note: accepted: lab " in run("remote", "check", "lab", "--allow-rollback").err
    assert run("list", "--remote", "lab", "--json").json["names"] == []
    run("push", "toy-opd:v1")
    assert lab[2] in run("list", "--remote", "lab", "--json").out


def test_an_entry_beyond_all_numbers_stops_a_push(run: Run, lab: tuple[Path, str, str]) -> None:
    log, _, _ = lab
    (log / f"{'9' * 20}.json").write_bytes((log / f"{1:020d}.json").read_bytes())
    refused = run("push", "toy-opd:v1", status=65).err
    assert "not an entry of a tag" in refused
    assert f"rm {log}/{'9' * 20}.json" in refused
    assert len(list(log.iterdir())) == 3


def test_an_immutable_tag(run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    named = run("tag", "toy-opd:v1", "v9", "--immutable", "--json").json
    assert [(row["ref"], row["immutable"]) for row in named] == [("toy-opd:v9", True)]
    refused = run("extract", pair[1], pair[0], "--name", "toy-opd:v9", status=77).err
    assert "toy-opd:v9 is immutable: it is at " + artifact[:19] in refused
    refused = run("extract", pair[1], pair[0], "--name", "toy-opd:v9", "--force", status=77).err
    assert "next: maskreg tag toy-opd@sha256:" in refused
    assert run("log", "toy-opd:v9").out.rstrip().endswith("  created, immutable")
    run("rm", "-y", "toy-opd:v9")
    run("extract", pair[1], pair[0], "--name", "other:v1")
    assert "removed it, and cannot move" in run("tag", "other:v1", "toy-opd:v9", status=77).err
    run("restore", "toy-opd:v9")


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


def test_an_output_that_exists_can_be_replaced_as_the_hint_says(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    command = ("apply", "toy-opd:v1", "--source", str(pair[0]), "--out", str(tmp_path / "out"))
    run(*command)
    _, _, hint = run(*command, status=73).err.partition("next: ")
    other, _, replace = hint.strip().partition(", or replace it: ")
    assert other == "choose another output"
    run(*replace.split()[1:])


def test_a_name_that_moves_says_what_it_was(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    later = run("extract", pair[1], pair[0], "--name", "other:v1", "--json").json["digest"]
    run("tag", "toy-opd:v1", "best")
    moved = run("tag", "other:v1", "toy-opd:best", "other:best")
    back = f"maskreg tag toy-opd:best@{artifact} best"
    assert moved.err == f"note: toy-opd:best was {artifact[:19]}; next: to have it back: {back}\n"
    assert run(*back.split()[1:], "--json").json[0]["was"] == later
    assert run("tag", "toy-opd:v1", "best", "--json").json[0]["was"] is None


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


@pytest.mark.usefixtures("artifact")
def test_a_tag_and_an_artifact_in_the_wrong_order_are_put_right(run: Run) -> None:
    step = run("tag", "v2", "toy-opd:v1", status=66).err.rpartition("maskreg ")[2].split()
    assert step == ["tag", "toy-opd:v1", "v2"]
    run(*step)
    assert run("show", "toy-opd:v2", "-q").out


@pytest.mark.usefixtures("artifact")
def test_what_a_card_or_an_option_cannot_hold_is_refused(run: Run) -> None:
    assert "next:" in run("annotate", "toy-opd:v1", "--license", "Foo License", status=2).err
    run("annotate", "toy-opd:v1", "--license", "(MIT OR Apache-2.0) AND LicenseRef-lab")
    assert "next:" in run("annotate", "toy-opd:v1", status=2).err
    assert "next:" in run("annotate", "toy-opd:v1", "--meta", "start=Yes", status=2).err
    run("annotate", "toy-opd:v1", "--meta", "start=yes")
    run("annotate", "toy-opd:v1", "--meta", "start=")
    assert "next:" in run("config", "set", "jobs", "many", status=78).err
    run("follow", "toy-opd:v1", "--source", "x", "-o", "y", "--every", "0", status=2)


def test_the_source_is_never_offered_for_replacement(run: Run, pair: tuple[Path, Path], artifact: str) -> None:
    for words in (["apply"], ["merge", "--method", "negate"], ["convert", "--to", "slime"]):
        refused = run(*words, "toy-opd:v1", "--source", pair[0], "-o", pair[0], status=73)
        assert "--force" not in refused.err

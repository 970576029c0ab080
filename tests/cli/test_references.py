"""What is printed can be typed: names, digests and the first digits of them, alone, in pipes and several at once."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.digest import Digest
from maskreg.registry import Registry
from maskreg.settings import Settings
from tests.cli.conftest import Run

REF = "toy-opd:v1"


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> object:
    """Puts a text on the commands' standard input."""

    def call(text: str) -> None:
        class Stdin(io.StringIO):
            buffer = io.BytesIO(text.encode())

        monkeypatch.setattr("sys.stdin", Stdin(text))

    return call


def written(digest: str) -> list[str]:
    digits = digest.removeprefix("sha256:")
    return [
        digest,
        digest[:19],
        digest[:11],
        digits,
        digits[:12],
        digits[:4],
        f"{REF}@{digest}",
        f"{REF}@{digest[:14]}",
        f"@{digest}",
        f"@{digest[:14]}",
    ]


def test_every_form_of_a_digest_names_the_artifact(run: Run, artifact: str, tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    for n, text in enumerate(written(artifact)):
        assert run("show", text, "--json").json["digest"] == artifact
        assert run("verify", text, "--json").json["artifacts"] == 1
        (tagged,) = run("tag", text, "new/name:t", "--json").json
        assert tagged["digest"] == artifact
        run("rm", "-y", "new/name:t")
        assert run("push", text, "--json").json[0]["ref"] == REF
        assert run("pull", text, "--json").out.count(artifact) > 0
        assert run("export", text, "-o", tmp_path / f"{n}.maskreg", "--json").json["digest"] == artifact
        assert run("log", text, "--json").json[0]["digest"] == artifact
        assert run("compare", text, REF, "--json").json["masks"][0]["digest"] == artifact


def test_a_digest_of_a_remote_is_pulled_under_its_name(
    run: Run, artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", REF)
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "bob"))
    assert run("show", artifact[:15], "--remote", "lab", "--json").json["digest"] == artifact
    run("pull", artifact[:15])
    assert run("list", "-q").out == f"{REF}\n"


def test_digits_of_several_digests_name_the_candidates(run: Run, artifact: str) -> None:
    digits = artifact.removeprefix("sha256:")
    twin = Digest(artifact[:27] + ("0" if digits[20] != "0" else "1") + "0" * 43)
    with Registry.local(Settings.load()) as registry:
        registry.store.put(artifact_prefix(twin) + MANIFEST, b"{}")
    for text in (digits[:4], artifact[:19], f"{REF}@{artifact[:19]}"):
        told = run("show", text, status=2).err
        assert "2 digests in local begin with" in told
        assert f"{artifact[:28]} ({REF})" in told
        assert f"{twin[:28]} (no name)" in told
        step = told.partition("next: ")[2].strip()
        assert step.startswith("maskreg list sha256:")
        run(*step.split()[1:])
    assert run("show", artifact[:28], "--json").json["digest"] == artifact


def test_a_name_of_hex_digits_goes_before_a_digest(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    digits = artifact.removeprefix("sha256:")[:4]
    later = run("extract", pair[1], pair[0], "--name", digits, "--json").json["digest"]
    assert run("show", digits, "--json").json["digest"] == later
    assert run("show", f"sha256:{digits}", "--json").json["digest"] == artifact


def test_what_no_digest_begins_with_is_not_there(run: Run, artifact: str) -> None:
    assert "no digest in local begins with 000000" in run("show", "sha256:000000", status=66).err
    assert "there is no 000000 in local" in run("show", "000000", status=66).err
    assert "is not a digest" in run("show", "sha256:abc", status=2).err
    assert "is not a digest" in run("show", f"{REF}@sha256:XYZ0", status=2).err


def test_a_digest_with_several_names_says_which(run: Run, artifact: str) -> None:
    run("tag", REF, "v2")
    told = run("rm", "-y", artifact[:15], status=2).err
    assert f"{artifact[:19]} has 2 names in local: {REF}, toy-opd:v2" in told
    assert f"next: maskreg list {artifact[:19]}" in told
    assert run("list", "-q").out.splitlines() == ["toy-opd:v2", REF]


def test_several_are_removed_pushed_and_verified_or_none(run: Run, artifact: str, tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    run("tag", REF, "v2", "v3")
    three = [REF, "toy-opd:v2", "toy-opd:v3"]
    for command in (["rm", "-y"], ["push"], ["verify"]):
        assert "there is no nobody" in run(*command, *three, "nobody", status=66).err
    assert sorted(run("list", "-q").out.split()) == three
    assert run("list", "-q", "--remote", "lab").out == ""
    assert [row["ref"] for row in run("push", *three, "--json").json] == three
    assert "one by one" in run("push", *three, "--tag", "x", status=2).err
    report = run("verify", *three, "--json").json
    assert (report["tags"], report["artifacts"], report["ok"]) == (3, 3, True)
    assert "needs -y" in run("rm", *three, status=2).err
    assert [row["ref"] for row in run("rm", "-y", *three, REF, "--json").json] == three
    assert run("list", "-q").out == ""


def test_show_reads_a_pipe(run: Run, artifact: str, feed: object) -> None:
    for text in (run("pull", REF).out, f"{REF}\n", f"{artifact[:12]}\n", run("list", "-q").out):
        feed(text)  # type: ignore[operator]
        assert run("show", "-", "--json").json["digest"] == artifact
    feed(run("pull", "nobody", status=66).out)  # type: ignore[operator]
    assert "the command before the pipe failed" in run("show", "-", status=65).err
    feed("")  # type: ignore[operator]
    assert "next: maskreg pull REF | maskreg show" in run("show", "-", status=65).err


def test_the_log_says_what_happened(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    later = run("extract", pair[1], pair[0], "--name", REF, "--json").json["digest"]
    run("annotate", REF, "--license", "mit")
    run("rm", "-y", REF)
    run("restore", REF)
    run("rm", "-y", REF)
    run("tag", artifact, REF)
    run("tag", REF, "v1", "--immutable")
    rows = run("log", REF, "--json").json
    assert [row["n"] for row in rows] == list(range(1, 9))
    actions = ["created", "moved", "annotated", "removed", "restored", "removed", "set again", "fixed"]
    assert [row["action"] for row in rows] == actions
    digests = [artifact, later, later, None, later, None, artifact, artifact]
    assert [row["digest"] for row in rows] == digests
    lines = run("log", REF).out.splitlines()
    for line, row in zip(lines, rows, strict=True):
        assert line.startswith(str(row["n"]))
        assert row["by"] in line
        assert line.endswith(row["action"])
        assert (row["digest"] or "-")[:19] in line
    assert run("log", REF, "-q").out.splitlines() == [digest or "-" for digest in digests]


def test_a_quiet_answer_can_be_typed_again(run: Run, artifact: str, tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    for command in ("show", "push"):
        for text in (REF, f"{REF}@{artifact}", f"{REF}@{artifact[:14]}"):
            assert run(command, text, "-q").out.splitlines()[0] == f"{REF}@{artifact}"


def test_names_that_were_removed_are_not_suggested(run: Run, artifact: str) -> None:
    run("tag", REF, "toy-opd:v2", "toy-opd:v3")
    run("rm", "-y", "toy-opd:v2")
    told = run("show", "toy-opd", status=66).err
    assert "similar: toy-opd:v1, toy-opd:v3\n  next: maskreg list toy-opd\n" in told


def test_a_digest_gets_a_tag_by_the_command_of_the_hint(run: Run, artifact: str) -> None:
    told = run("tag", artifact, "v9", status=2).err
    assert "an artifact that is given by its digest cannot get the tag 'v9' alone" in told
    step = told.partition("next: ")[2].replace("NAME", "toy-opd").split()
    run(*step[1:])
    assert run("show", "toy-opd:v9", "--json").json["digest"] == artifact


def test_removing_without_a_terminal_names_the_whole_command(run: Run, artifact: str) -> None:
    run(*run("rm", REF, status=2).err.partition("next: ")[2].split()[1:])
    assert run("list", "-q").out == ""

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


def test_every_form_of_a_digest_names_the_artifact(
    run: Run, artifact: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    digits = artifact.removeprefix("sha256:")
    forms = [artifact, artifact[:19], artifact[:11], digits, digits[:12], digits[:4]]
    forms += [f"{name}@{digest}" for name in (REF, "") for digest in (artifact, artifact[:14])]
    for text in forms:
        assert run("show", text, "--json").json["digest"] == artifact
    short = digits[:12]
    assert run("verify", short, "--json").json["artifacts"] == 1
    (tagged,) = run("tag", short, "new/name:t", "--json").json
    assert tagged["digest"] == artifact
    run("rm", "-y", "new/name:t")
    assert run("push", short, "--json").json[0]["ref"] == REF
    assert run("pull", short, "--json").out.count(artifact) > 0
    assert run("log", short, "--json").json[0]["digest"] == artifact
    assert run("compare", short, REF, "--json").json["masks"][0]["digest"] == artifact
    # A name of hex digits goes before a digest.
    later = run("extract", *pair[::-1], "--name", digits[:4], "--json").json["digest"]
    assert run("show", digits[:4], "--json").json["digest"] == later


def test_digits_of_several_digests_name_the_candidates(run: Run, artifact: str) -> None:
    digits = artifact.removeprefix("sha256:")
    twin = Digest(artifact[:27] + ("0" if digits[20] != "0" else "1") + "0" * 43)
    with Registry.local(Settings.load()) as registry:
        registry.store.put(artifact_prefix(twin) + MANIFEST, b"{}")
    for text in (digits[:4], artifact[:19], f"{REF}@{artifact[:19]}"):
        told = run("show", text, status=2).err
        assert f"{artifact[:28]} ({REF})" in told and f"{twin[:28]} (no name)" in told
        step = told.partition("next: ")[2].strip()
        assert step.startswith("maskreg list sha256:")
        run(*step.split()[1:])
    assert run("show", artifact[:28], "--json").json["digest"] == artifact


def test_several_are_removed_pushed_and_verified_or_none(run: Run, artifact: str, tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    run("tag", REF, "v2", "v3")
    three = [REF, "toy-opd:v2", "toy-opd:v3"]
    for command in (["rm", "-y"], ["push"], ["verify"]):
        run(*command, *three, "absent", status=66)
    run("rm", "-y", artifact[:15], status=2)  # it has three names
    assert sorted(run("list", "-q").out.split()) == three
    assert run("list", "-q", "--remote", "lab").out == ""
    assert [row["ref"] for row in run("push", *three, "--json").json] == three
    assert run("verify", *three, "--json").json["tags"] == 3
    assert [row["ref"] for row in run("rm", "-y", *three, REF, "--json").json] == three
    assert "similar" not in run("show", "toy-opd", status=66).err
    assert run("list", "-q").out == ""


def test_show_reads_a_pipe(run: Run, artifact: str, feed: object) -> None:
    for text in (run("pull", REF).out, f"{REF}\n", f"{artifact[:12]}\n", run("list", "-q").out):
        feed(text)  # type: ignore[operator]
        assert run("show", "-", "--json").json["digest"] == artifact
    feed(run("pull", "absent", status=66).out)  # type: ignore[operator]
    assert "NOT_FOUND" in run("show", "-", status=65).err
    feed("")  # type: ignore[operator]
    assert "next: maskreg pull REF | maskreg show" in run("show", "-", status=65).err


def test_a_readme_comes_from_a_file_or_a_pipe(run: Run, artifact: str, tmp_path: Path, feed: object) -> None:
    path = tmp_path / "README.md"
    path.write_bytes(b"\xef\xbb\xbf# Use\r\n\r\n- first\r\n")
    assert run("annotate", REF, "--readme", path, "--json").json["card"]["readme"] == "# Use\n\n- first"
    assert "- first" in run("show", REF, "--verbose").out
    feed("again")  # type: ignore[operator]
    assert run("annotate", REF, "--readme", "-", "--json").json["card"]["readme"] == "again"
    path.write_bytes(b"\xff")
    for wrong in (path, tmp_path, tmp_path / "nothing"):
        run("annotate", REF, "--readme", wrong, status=2)
    assert len(run("log", REF, "--json").json) == 3


def test_the_same_artifact_keeps_what_was_said_about_it(run: Run, artifact: str, pair: tuple[Path, Path]) -> None:
    run("annotate", REF, "--license", "mit", "--meta", "seed=1", "--meta", "note=x")
    again = run("extract", *pair, "--name", REF, "--method", "rlvr", "--meta", "seed=2", "--meta", "note=", "--json")
    assert again.json["digest"] == artifact
    wanted = {"family": "toy", "method": "rlvr", "license": "mit", "meta": {"seed": "2"}}
    assert again.json["card"] == wanted
    assert run("show", REF, "--json").json["card"] == wanted
    count = len(run("log", REF, "--json").json)
    run("extract", *pair, "--name", REF)
    assert len(run("log", REF, "--json").json) == count
    # Another artifact starts with a card of its own.
    assert run("extract", *pair[::-1], "--name", REF, "--license", "mit", "--json").json["card"] == {"license": "mit"}

"""Keys on the command line: made, listed, replaced, copied, trusted; what they signed; and what is refused without."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.store import FileStore
from maskreg.store.reflog import RefLog
from tests.cli.conftest import Run


def forge(tmp_path: Path, artifact: str) -> None:
    """A writer without the key moves the tag on lab."""
    log = RefLog(FileStore(tmp_path / "lab"))
    ref = Ref.parse("toy-opd:v1")
    log.append(ref, after=log.head(ref), digest=Digest(artifact), card=Card(family="evil"), by="eve@evil")


def second(monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> None:
    """Go on as Bob, who has a home of his own."""
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "bob" / "home"))
    monkeypatch.setenv("MASKREG_CONFIG", str(tmp_path / "bob" / "config.toml"))
    run("remote", "add", "lab", tmp_path / "lab")


@pytest.fixture
def key(run: Run, artifact: str, tmp_path: Path) -> str:
    """The key of the project ``default`` on ``lab``, where Ada has pushed ``toy-opd:v1``."""
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", "toy-opd:v1")
    made = run("key", "create", "default", "--remote", "lab", "--json").json
    assert (made["project"], made["registry"], made["n"], made["current"], made["private"]) == (
        *("default", "lab", 1, True, True),
    )
    return str(made["key"])


def test_the_private_key_is_its_owners_alone(
    run: Run, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "copy.pem"
    run("key", "export", "default", out, "--remote", "lab")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    (kept,) = Path(run("config", "get", "home").out.strip()).glob(".private/*")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    second(monkeypatch, run, tmp_path)
    run("pull", "toy-opd:v1")
    run("annotate", "toy-opd:v1", "--family", "other")
    for command in (["push", "toy-opd:v1"], ["key", "rotate", "default", "--remote", "lab"]):
        assert "next: maskreg key import FILE; where the key is: " in run(*command, status=77).err
    run("key", "import", out)
    run("push", "toy-opd:v1")
    assert run("verify", "--signatures", "--all", "--remote", "lab").out.split()[:2] == ["toy-opd:v1", "signed"]
    (copied,) = Path(run("config", "get", "home").out.strip()).glob(".private/*")
    copied.chmod(0o644)
    run("annotate", "toy-opd:v1", "--family", "third")
    assert f"next: chmod 600 {copied}" in run("push", "toy-opd:v1", status=77).err


def test_a_forged_tag_is_refused_until_the_holder_of_the_key_signs_it(
    run: Run, key: str, artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge(tmp_path, artifact)
    step = "next: if it is right, the holder of the key can sign it: maskreg key sign toy-opd:v1 --remote lab\n"
    with monkeypatch.context() as patch:
        second(patch, run, tmp_path)
        assert step in run("pull", "toy-opd:v1", status=65).err
        for command in ("show", "log"):
            run(command, "toy-opd:v1", "--remote", "lab", "--allow-rollback", status=65)
        listed = run("list", "-q", "--remote", "lab")
        assert (listed.out, "maskreg verify toy-opd:v1" in listed.err) == ("", True)
        checked = run("verify", "--signatures", "--all", "--remote", "lab", status=65)
        assert checked.out.splitlines()[0].split() == ["toy-opd:v1", "wrong", "-", "-"]
        assert step.strip() in checked.out
        report = run("verify", "--signatures", "--all", "--remote", "lab", "--json", status=65).json
        assert (report["ok"], report["tags"][0]["state"]) == (False, "wrong")
        run("key", "sign", "toy-opd:v1", "--remote", "lab", status=77)
    signed = run("key", "sign", "toy-opd:v1", "--remote", "lab")
    assert signed.out.split()[:3] == ["toy-opd:v1", "signed", key[:20]]
    assert run("show", "toy-opd:v1", "--remote", "lab", "--json").json["card"]["family"] == "evil"


def test_a_project_without_its_private_key_is_refused_before_the_work(
    run: Run, artifact: str, pair: tuple[Path, Path]
) -> None:
    run("key", "create", "default")
    for path in Path(run("config", "get", "home").out.strip()).glob(".private/*"):
        path.unlink()
    run("extract", *pair, "--name", "toy-opd:v2", status=77)
    run("extract", *pair, "--name", "paper/toy-opd:v2")

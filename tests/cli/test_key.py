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

ZERO = f"ed25519:{'0' * 64}"


def forge(tmp_path: Path, artifact: str) -> None:
    """A writer without the key moves the tag on lab."""
    log = RefLog(FileStore(tmp_path / "lab"))
    ref = Ref.parse("toy-opd:v1")
    log.append(ref, after=log.head(ref), digest=Digest(artifact), card=Card(family="evil"), by="eve@evil")


def second(monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path, *options: str) -> None:
    """Go on as Bob, who has a home of his own."""
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "bob" / "home"))
    monkeypatch.setenv("MASKREG_CONFIG", str(tmp_path / "bob" / "config.toml"))
    run("remote", "add", "lab", tmp_path / "lab", *options)


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
    said = run("key", "export", "default", out, "--remote", "lab")
    assert said.err == f"{out} holds the private key of {key}: with it, anyone can sign default\n"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    run("key", "export", "default", out, "--remote", "lab", status=73)
    run("key", "export", "default", out, "--remote", "lab", "--force")
    (kept,) = Path(run("config", "get", "home").out.strip()).glob(".private/*")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    second(monkeypatch, run, tmp_path)
    run("pull", "toy-opd:v1")
    run("annotate", "toy-opd:v1", "--family", "other")
    for command in (["push", "toy-opd:v1"], ["key", "rotate", "default", "--remote", "lab"]):
        refused = run(*command, status=77)
        assert f"default on lab is signed with {key}, and its private key is not on this machine" in refused.err
        assert "next: maskreg key import FILE; where the key is: maskreg key export default FILE" in refused.err
    run("key", "export", "default", tmp_path / "no.pem", "--remote", "lab", status=66)
    assert run("key", "import", out).err == f"this machine signs with {key}\n"
    run("push", "toy-opd:v1")
    assert run("verify", "--signatures", "--all", "--remote", "lab").out.split()[:2] == ["toy-opd:v1", "signed"]
    (copied,) = Path(run("config", "get", "home").out.strip()).glob(".private/*")
    copied.chmod(0o644)
    run("annotate", "toy-opd:v1", "--family", "third")
    assert f"next: chmod 600 {copied}" in run("push", "toy-opd:v1", status=77).err


def test_a_forged_tag_is_refused_by_name(
    run: Run, key: str, artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge(tmp_path, artifact)
    step = "next: if it is right, the holder of the key can sign it: maskreg key sign toy-opd:v1 --remote lab\n"
    second(monkeypatch, run, tmp_path)
    refused = run("pull", "toy-opd:v1", status=65)
    assert "toy-opd:v1 on lab: entry 2, " in refused.err
    assert "by eve@evil at 20" in refused.err and f"is not signed, and {key} signs default" in refused.err
    assert step in refused.err
    for arguments in (["show", "toy-opd:v1", "--remote", "lab"], ["log", "toy-opd:v1", "--remote", "lab"]):
        assert "is not signed" in run(*arguments, status=65).err
        assert "is not signed" in run(*arguments, "--allow-rollback", status=65).err
    listed = run("list", "--remote", "lab")
    assert listed.out == "" and f"is not signed, and {key} signs default" in listed.err
    checked = run("verify", "--signatures", "--all", "--remote", "lab", status=65)
    assert checked.out.splitlines()[0].split() == ["toy-opd:v1", "wrong", "-", "-"]
    assert step.strip() in checked.out
    assert "no trusted key vouches for 1 tag in lab" in checked.err
    report = run("verify", "--signatures", "--all", "--remote", "lab", "--json", status=65).json
    assert (report["ok"], report["tags"][0]["state"]) == (False, "wrong")
    assert "is not signed" in run("verify", "--all", "--remote", "lab", status=65).out
    run("key", "sign", "toy-opd:v1", "--remote", "lab", status=77)


def test_the_holder_of_the_key_signs_what_others_set(run: Run, key: str, artifact: str, tmp_path: Path) -> None:
    forge(tmp_path, artifact)
    run("show", "toy-opd:v1", "--remote", "lab", status=65)
    signed = run("key", "sign", "toy-opd:v1", "--remote", "lab")
    assert signed.out.split()[:3] == ["toy-opd:v1", "signed", key[:20]]
    assert run("show", "toy-opd:v1", "--remote", "lab", "--json").json["card"]["family"] == "evil"


def test_a_key_is_replaced_and_readers_follow(
    run: Run, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("key", "create", "default", "--remote", "lab", status=77)
    new = run("key", "rotate", "default", "--remote", "lab", "--fresh", "7d", "--json").json
    assert (new["n"], new["fresh_s"]) == (2, 7 * 86_400)
    rows = run("key", "list", "--remote", "lab").out.splitlines()
    assert rows[0].endswith("replaced") and "signs, good until 20" in rows[1] and new["key"][:20] in rows[1]
    assert run("key", "list", "--remote", "lab", "--quiet").out == f"{new['key']}\n"
    refreshed = run("key", "refresh", "default", "--remote", "lab")
    assert f"{new['key']} says how the tags of default in lab stand, good until" in refreshed.err
    second(monkeypatch, run, tmp_path, "--project-key", f"default={key}")
    run("pull", "toy-opd:v1")
    assert run("config", "get", "remotes.lab.project_keys").out == f"default={key}\n"
    assert run("remote", "list", "--json").json[0]["project_keys"] == [f"default={key}"]


def test_another_key_than_the_configured_one_is_refused(
    run: Run, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second(monkeypatch, run, tmp_path, "--project-key", f"default={ZERO}")
    refused = run("pull", "toy-opd:v1", status=65).err
    assert f"default on lab has the key {key}, and {ZERO}, which is configured as its key, did not hand over" in refused
    assert f"maskreg config set remotes.lab.project_keys default={key}" in refused
    assert "maskreg key trust" not in refused
    run("config", "set", "remotes.lab.project_keys", f"default={key}")
    run("pull", "toy-opd:v1")
    for wrong in ("default", f"default={key[:-1]}", f"default={key},default={ZERO}", f"De Fault={key}"):
        run("config", "set", "remotes.lab.project_keys", wrong, status=78)


def test_a_lost_key_is_replaced_and_told_to_readers(
    run: Run, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in Path(run("config", "get", "home").out.strip()).glob(".private/*"):
        path.unlink()
    run("key", "rotate", "default", "--remote", "lab", status=77)
    new = run("key", "create", "default", "--remote", "lab", "--replace-lost", "--json").json["key"]
    second(monkeypatch, run, tmp_path)
    refused = run("pull", "toy-opd:v1", status=65).err
    assert f"has the key {new}, and {key}, the key before it (key 1), did not hand over to it" in refused
    assert f"maskreg key trust default {new} --remote lab" in refused
    assert f"and not {ZERO}" in run("key", "trust", "default", ZERO, "--remote", "lab", status=65).err
    run("key", "trust", "default", "ed25519:short", "--remote", "lab", status=2)
    run("key", "trust", "default", new, "--remote", "lab")
    run("pull", "toy-opd:v1")


def test_a_project_without_its_private_key_is_refused_before_the_work(
    run: Run, artifact: str, pair: tuple[Path, Path]
) -> None:
    run("key", "create", "default")
    for path in Path(run("config", "get", "home").out.strip()).glob(".private/*"):
        path.unlink()
    refused = run("extract", *pair, "--name", "toy-opd:v2", status=77)
    assert "its private key is not on this machine" in refused.err
    # Also in a project that is not signed, where it is fine.
    run("extract", *pair, "--name", "paper/toy-opd:v2")

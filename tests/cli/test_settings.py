"""``config``, ``remote``, ``db`` and ``doctor``."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from maskreg.store import STORES, MemoryStore
from tests.cli.conftest import Run
from tests.servers import Postgres
from tests.store.scripted_s3 import Answer, serve
from tests.store.wrapped import Wrapped


class Careless(Wrapped):
    """A store that lets a create-only write replace what is there."""

    def create(self, key: str, data: bytes) -> bool:
        self.put(key, data)
        return True


def test_config_is_set_shown_and_unset(run: Run) -> None:
    path = run("config", "path").out.strip()
    assert path == os.environ["MASKREG_CONFIG"]
    run("config", "set", "jobs", "4")
    assert run("config", "get", "jobs").out == "4\n"
    assert f"jobs = 4    ({path})" in run("config", "show", "--origin").out
    run("config", "unset", "jobs")
    assert "jobs = 8    (default)" in run("config", "show", "--origin").out
    run("config", "get", "no-such-key", status=66)
    run("config", "set", "jobs", "many", status=78)


def test_remotes_are_added_listed_and_removed(run: Run, tmp_path: Path) -> None:
    assert run("remote", "list").out == ""
    run("remote", "add", "one", tmp_path / "one")
    assert run("remote", "list").out == f"one\t{tmp_path / 'one'}\tdefault\n"
    run("remote", "add", "two", (tmp_path / "two").as_uri(), "--default")
    assert run("remote", "list", "-q").out == "one\ntwo\n"
    assert [row["default"] for row in run("remote", "list", "--json").json] == [False, True]
    run("remote", "default", "one")
    assert run("remote", "check").out.startswith("one: put, get, list, delete work; create-only writes are safe")
    run("remote", "add", "one", tmp_path / "three", status=78)
    run("remote", "default", "three", status=78)
    run("remote", "remove", "one")
    run("remote", "remove", "one", status=78)
    # Probing leaves nothing behind.
    assert [path for path in (tmp_path / "two").rglob("*") if path.is_file()] == []


def test_several_remotes_and_no_default(run: Run, artifact: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run("remote", "add", name, tmp_path / name)
    assert "next: maskreg config set default_remote one" in run("push", "toy-opd:v1", status=78).err
    assert run("pull", "toy-opd:v1", "--json", status=78).out.count('"maskreg.end/1"') == 1


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "s3://key:secret@bucket", "s3://"], ids=["scheme", "password", "no bucket"]
)
def test_a_url_that_cannot_be_meant_is_refused(run: Run, url: str) -> None:
    done = run("remote", "add", "lab", url, status=78)
    assert "secret" not in done.err
    assert run("remote", "list").out == ""


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")


def test_a_remote_that_does_not_answer_is_not_added(run: Run, credentials: None) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        run("remote", "add", "lab", "s3://bucket", "--endpoint", endpoint, status=69)
    assert run("remote", "list").out == ""


def test_a_remote_that_refuses_names_the_permission(run: Run, credentials: None) -> None:
    with serve(Answer(403, code="AccessDenied")) as script:
        told = run("remote", "add", "lab", "s3://bucket", "--endpoint", script.url, status=77).err
    assert "s3:PutObject" in told
    assert run("remote", "list").out == ""


def test_a_store_that_would_lose_tags_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STORES, "careless", lambda url, options: Careless(MemoryStore()))
    told = run("remote", "add", "lab", "careless://x", status=78).err
    assert "cannot keep tags" in told
    assert "lets a create-only write replace an object" in told
    assert "next: maskreg remote add lab careless://x --catalog postgresql+psycopg://HOST/DATABASE" in told
    assert run("remote", "list").out == ""
    run("remote", "add", "lab", "careless://x", "--catalog", "postgresql+psycopg://host/database")
    assert "BAD" not in run("doctor").out
    run("config", "unset", "remotes.lab.catalog")
    run("remote", "check", "lab", status=78)
    assert "BAD   remote lab" in run("doctor", status=1).out


def test_an_offline_machine_asks_nobody(
    run: Run, artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    monkeypatch.setenv("MASKREG_OFFLINE", "1")
    run("push", "toy-opd:v1", status=69)
    run("list", "--remote", "lab", status=69)
    assert "this is the local artifact" in run("pull", "toy-opd:v1").err


def test_the_catalog_is_checked_and_rebuilt(run: Run, artifact: str) -> None:
    assert run("db", "check").out.startswith("usable, schema ")
    assert run("db", "rebuild", "--json").json == {"refs": 1, "artifacts": 1, "damaged": []}
    catalog = Path(os.environ["MASKREG_HOME"]) / "catalog.db"
    catalog.write_bytes(b"this is not a database" * 100)
    done = run("list", "-q")
    assert done.out == "toy-opd:v1\n"
    assert artifact in run("show", "toy-opd:v1").out
    run("db", "rebuild")
    assert run("list", "-q").err == ""


def test_a_remote_without_a_catalog_says_so(run: Run, tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    assert "its store alone is the registry" in run("db", "current", "--remote", "lab", status=78).err


def test_doctor_finds_nothing_on_a_fresh_machine(run: Run, tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    rows = {row["what"]: row["status"] for row in run("doctor", tmp_path, "--json").json}
    assert {k: v for k, v in rows.items() if k != "disk"} == {
        "version": "ok",
        "configuration": "ok",
        "registry": "ok",
        "catalog": "ok",
        "remote lab": "ok",
        "unfinished work": "ok",
    }


def test_doctor_says_what_is_bad(run: Run, artifact: str, tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    shutil.rmtree(tmp_path / "lab")
    (tmp_path / "lab").write_text("a file")
    done = run("doctor", status=1)
    assert "BAD   remote lab" in done.out


def test_doctor_finds_names_that_lead_nowhere(run: Run, artifact: str, tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", "toy-opd:v1")
    run("export", "toy-opd:v1", "-o", tmp_path / "copy.maskpack")
    for place in (Path(os.environ["MASKREG_HOME"]), tmp_path / "lab"):
        (place / "artifacts" / "sha256" / artifact.removeprefix("sha256:") / "manifest.json").unlink()
    rows = {row["what"]: row for row in run("doctor", "--json", status=1).json}
    for what in ("registry", "remote lab"):
        assert rows[what]["status"] == "bad"
        assert "toy-opd:v1" in rows[what]["detail"]
    assert rows["registry"]["hint"] == "maskreg pull toy-opd:v1, or maskreg rm -y toy-opd:v1"
    assert rows["remote lab"]["hint"] == "maskreg push --remote lab toy-opd:v1"
    run("rm", "-y", "toy-opd:v1")
    run("import", tmp_path / "copy.maskpack")
    run("push", "--remote", "lab", "toy-opd:v1")
    assert "BAD" not in run("doctor").out


def test_doctor_finds_a_damaged_name_and_a_damaged_identity(run: Run, artifact: str) -> None:
    home = Path(os.environ["MASKREG_HOME"])
    entry = next((home / "refs").rglob("*.json"))
    entry.write_bytes(b"{}")
    done = run("doctor", status=1)
    assert "BAD   registry" in done.out
    assert f"rm {entry}" in done.out
    entry.unlink()
    (home / "maskreg.json").write_text("{}")
    assert "not the identity of a registry" in run("doctor", status=1).out


def test_a_home_that_cannot_be_one_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("MASKREG_HOME", str(home))
        for command in (("list",), ("db", "rebuild"), ("show", "toy-opd:v1")):
            assert "MASKREG_HOME" in run(*command, status=78).err
        assert "BAD   registry" in run("doctor", status=1).out


def test_advice_about_a_catalog_names_its_remote(run: Run, artifact: str, postgres: Postgres, tmp_path: Path) -> None:
    run("remote", "add", "bare", tmp_path / "bare")
    told = run("db", "rebuild", "--remote", "bare", status=78).err
    assert "next: maskreg config set remotes.bare.catalog" in told
    run("remote", "add", "lab", tmp_path / "lab", "--catalog", postgres.new_database())
    for command in ("rebuild", "check"):
        told = run("db", command, "--remote", "lab", status=78).err
        assert "next: maskreg db upgrade --remote lab" in told
    assert "then: maskreg db upgrade --remote lab" in run("list", "--remote", "lab").err
    run("db", "upgrade", "--remote", "lab")
    run("db", "rebuild", "--remote", "lab")
    assert run("list", "--remote", "lab").err == ""

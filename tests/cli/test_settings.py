"""``config``, ``remote``, ``db`` and ``doctor``, also where the catalog of a remote cannot be used."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from maskreg.store import STORES
from tests.buckets import log_in
from tests.cli.conftest import Run
from tests.people import umask
from tests.servers import Postgres, SeaweedFS
from tests.store.hosting import Answer, serve
from tests.store.memory import MemoryStore
from tests.store.wrapped import Wrapped


class Careless(Wrapped):
    """A store that lets a create-only write replace what is there."""

    def create(self, key: str, data: bytes) -> bool:
        self.put(key, data)
        return True


def test_a_remote_that_cannot_be_used_is_not_added(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    assert "secret" not in run("remote", "add", "lab", "s3://key:secret@bucket", status=78).err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        run("remote", "add", "lab", "s3://bucket", "--endpoint", endpoint, status=69)
    with serve(Answer(403, code="AccessDenied")) as script:
        told = run("remote", "add", "lab", "s3://bucket", "--endpoint", script.url, status=77).err
    assert "s3:PutObject" in told
    assert run("remote", "list").out == ""


def test_a_reader_pulls_and_does_not_push(
    run: Run, artifact: str, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log_in(s3_server, monkeypatch)
    url = f"s3://{s3_server.new_bucket()}/team"
    empty = f"s3://{s3_server.new_bucket()}/team"
    run("remote", "add", "lab", url)
    run("push", "toy-opd:v1")
    run("remote", "remove", "lab")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.reader_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.reader_secret)
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "reader"))
    run("remote", "add", "lab", empty, status=77)
    assert run("remote", "list").out == ""
    read_only = "read-only: pull works, push does not"
    assert f"added lab ({url}): {read_only}" in run("remote", "add", "lab", url).err
    assert run("remote", "check", "lab").out == f"lab: {read_only}\n"
    checked = run("remote", "check", "--json").json
    assert (checked["writable"], checked["create_only"]) == (False, "untried")
    assert f"note  remote lab      {url}: {read_only}, 1 tag\n" in run("doctor").out
    run("pull", "toy-opd:v1")
    assert "s3:PutObject" in run("push", "toy-opd:v1", "--tag", "mine", status=77).err


def test_an_offline_machine_sends_no_request(
    run: Run, artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    monkeypatch.setenv("MASKREG_OFFLINE", "1")
    run("push", "toy-opd:v1", status=69)
    run("list", "--remote", "lab", status=69)
    run("pull", "toy-opd:v1")


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}


@umask(0o022)
def test_a_home_is_its_owners_alone(
    run: Run, pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.environ["MASKREG_HOME"])
    run("remote", "add", "team", tmp_path / "team")
    run("extract", *pair, "--name", "toy")
    run("push", "toy")
    assert modes(home) == {0o700, 0o600}
    assert modes(tmp_path / "team") == {0o755, 0o644}  # made by remote add, for others to read
    monkeypatch.setenv("MASKREG_HOME", str(home := tmp_path / "above" / "other"))
    run("pull", "toy")
    run("annotate", "toy", "--license", "mit")
    assert modes(home) == {0o700, 0o600}
    assert "permissions     " in run("doctor").out


RIGHTS = {
    0o755: (0, "note  permissions     anyone can read HOME (mode 0755)\n{:<22}next: chmod go-rwx HOME\n"),
    0o750: (0, "note  permissions     its group can read HOME (mode 0750)\n{:<22}next: chmod g-rwx HOME\n"),
    0o777: (1, "BAD   permissions     anyone can write to HOME (mode 0777)\n{:<22}next: chmod o-w HOME\n"),
    0o2770: (0, "note  permissions     its group can write to HOME (mode 2770)\n"),
}
FOLDERS, FILES = {0o777: 0o755}, {0o755: 0o644, 0o777: 0o644, 0o750: 0o640, 0o2770: 0o660}


@pytest.mark.parametrize("mode", RIGHTS)
@umask(0o022)
def test_a_home_of_wider_rights_is_left_and_reported(run: Run, pair: tuple[Path, Path], mode: int) -> None:
    home = Path(os.environ["MASKREG_HOME"])
    home.mkdir()
    home.chmod(mode)
    run("extract", *pair, "--name", "toy")
    assert stat.S_IMODE(home.stat().st_mode) == mode
    status, says = RIGHTS[mode]
    assert says.format("").replace("HOME", str(home)) in run("doctor", status=status).out
    assert modes(home) == {mode, FOLDERS.get(mode, mode), FILES[mode]}


def test_a_store_that_would_lose_tags_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STORES, "careless", lambda url, options: MemoryStore())
    run("remote", "add", "lab", "careless://x")
    assert "BAD" not in run("doctor").out
    monkeypatch.setitem(STORES, "careless", lambda url, options: Careless(MemoryStore()))
    run("remote", "check", "lab", status=78)
    assert "BAD   remote lab" in run("doctor", status=1).out
    run("remote", "remove", "lab")
    told = run("remote", "add", "lab", "careless://x", status=78).err
    assert "create-only" in told
    assert run("remote", "list").out == ""


def test_doctor_finds_names_that_lead_nowhere(run: Run, artifact: str, tmp_path: Path) -> None:
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", "toy-opd:v1")
    run("remote", "add", "copy", tmp_path / "copy")
    run("push", "toy-opd:v1", "--remote", "copy")
    for place in (Path(os.environ["MASKREG_HOME"]), tmp_path / "lab"):
        (place / "artifacts" / "sha256" / artifact.removeprefix("sha256:") / "manifest.json").unlink()
    rows = {row["what"]: row for row in run("doctor", "--json", status=1).json}
    for what in ("registry", "remote lab"):
        assert rows[what]["status"] == "bad"
        assert "toy-opd:v1" in rows[what]["detail"]
    assert rows["registry"]["hint"] == "maskreg pull toy-opd:v1, or maskreg rm -y toy-opd:v1"
    assert rows["remote lab"]["hint"] == "maskreg push toy-opd:v1 --remote lab"
    run("rm", "-y", "toy-opd:v1")
    run("pull", "toy-opd:v1", "--remote", "copy")
    run("push", "--remote", "lab", "toy-opd:v1")
    assert "BAD" not in run("doctor").out


def test_a_home_that_cannot_be_one_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("MASKREG_HOME", str(home))
        for command in (("list",), ("db", "rebuild"), ("show", "toy-opd:v1")):
            assert "MASKREG_HOME" in run(*command, status=78).err
        assert "BAD   registry" in run("doctor", status=1).out


def test_a_remote_whose_catalog_has_no_schema(run: Run, artifact: str, postgres: Postgres, tmp_path: Path) -> None:
    run("remote", "add", "bare", tmp_path / "bare")
    told = run("db", "rebuild", "--remote", "bare", status=78).err
    assert "next: maskreg config set remotes.bare.catalog" in told
    step = "next: maskreg db upgrade --remote lab\n"
    assert step in run("remote", "add", "lab", tmp_path / "lab", "--catalog", postgres.new_database()).err
    for command in (["remote", "check", "lab"], *(["db", name, "--remote", "lab"] for name in ("rebuild", "check"))):
        assert step in run(*command, status=78).err
    assert step in run("verify", "--all", "--remote", "lab", status=78).err
    assert step in run("list", "--remote", "lab").err
    assert step in run("doctor", status=1).out
    run("db", "upgrade", "--remote", "lab")
    run("db", "rebuild", "--remote", "lab")
    run("remote", "check", "lab")
    run("push", "toy-opd:v1")
    assert ", the catalog" in run("verify", "--all", "--remote", "lab").err

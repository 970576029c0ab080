from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from maskreg_cli.next_step import next_step
from sqlalchemy import make_url

from maskreg import errors
from maskreg.catalog import Event, Measurement, file, open_catalog
from maskreg.catalog.schema import upgrade
from tests.catalog.conftest import digest, entry, manifest
from tests.servers import Postgres, free_ports


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def fill(path: Path, sources: int = 1) -> None:
    with open_catalog(f"sqlite:///{path}") as catalog:
        catalog.put_artifact(digest(1), manifest())
        catalog.put_ref(entry("a", digest(1)))
        catalog.record(Measurement(digest(1), "rlvr_overlap", 0.5, detail={"x": 1}))
        catalog.log(Event("publish", "a", "ada"))
        for number in range(sources):
            catalog.saw_source("root", f"/models/{number}")


def test_a_writer_that_waits_too_long_is_told_to_try_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "BUSY_SECONDS", 0.05)
    fill(path)
    other = sqlite3.connect(path, isolation_level=None)
    with open_catalog(f"sqlite:///{path}") as catalog:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(errors.TryAgainError):
            catalog.put_artifact(digest(2), manifest())
        # A reader does not wait.
        assert len(catalog.search()) == 1
        other.execute("ROLLBACK")
        catalog.put_artifact(digest(2), manifest())
    other.close()


def test_a_file_that_is_no_database_is_damage(path: Path) -> None:
    path.write_bytes(b"this is not a database " * 100)
    with pytest.raises(errors.CorruptError) as caught:
        open_catalog(f"sqlite:///{path}")
    assert next_step(caught.value) == "maskreg db rebuild"
    assert caught.value.key == str(path)


def test_rows_that_cannot_be_read_are_damage(path: Path) -> None:
    fill(path)
    for change in (
        "UPDATE refs SET at = 'yesterday'",
        "UPDATE refs SET name = CAST(x'ff' AS TEXT)",
        "UPDATE refs SET digest = 'x'; UPDATE artifacts SET digest = 'x'",
    ):
        copy = path.with_name("copy.db")
        shutil.copy(path, copy)
        connection = sqlite3.connect(copy)
        connection.executescript(change)
        connection.close()
        with open_catalog(f"sqlite:///{copy}") as catalog, pytest.raises(errors.CorruptError) as caught:
            catalog.search()
        assert next_step(caught.value) == "maskreg db rebuild"


def test_a_damaged_page_is_damage_and_never_another_error(path: Path) -> None:
    fill(path, sources=200)
    whole = path.read_bytes()
    seen = 0
    for start in range(0, len(whole), 4096):
        path.write_bytes(whole[:start] + b"\xa5" * 4096 + whole[start + 4096 :])
        try:
            with open_catalog(f"sqlite:///{path}") as catalog:
                catalog.search()
                catalog.measurements(digest(1))
                catalog.events()
        except errors.CorruptError as error:
            assert next_step(error) == "maskreg db rebuild"
            seen += 1
    assert seen >= 5


def test_a_path_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.CannotCreateError):
        open_catalog(f"sqlite:///{tmp_path}/file/catalog.db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(errors.CannotCreateError):
        open_catalog(f"sqlite:///{tmp_path}/folder")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can read."""
    folder = Path(tempfile.mkdtemp(prefix="maskreg-shared-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


READ_ONLY = """
import sys
from maskreg.catalog import Query, open_catalog
from maskreg.errors import ConfigError, CannotCreateError, NotAllowedError
try:
    with open_catalog(sys.argv[1]) as catalog:
        print(",".join(found.name for found in catalog.search(Query(sort="name", descending=False))))
        catalog.saw_source("root", "/a")
except (ConfigError, CannotCreateError, NotAllowedError) as error:
    print(type(error).__name__)
"""


def as_reader(path: Path) -> list[str]:
    """Read, then try to write, as a user without the right to write there."""
    command = [sys.executable, "-B", "-c", READ_ONLY, f"sqlite:///{path}"]
    if os.geteuid() == 0:
        # Root can write everywhere, but for this capability: then the modes of files hold for it too.
        command = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *command]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_reader_can_search(shared: Path) -> None:
    path = shared / "catalog.db"
    fill(path)
    path.chmod(0o444)
    shared.chmod(0o555)
    assert as_reader(path) == ["a", "RefusedError"]
    assert as_reader(shared / "other.db") == ["CannotCreateError"]


def test_a_reader_sees_what_another_user_has_just_written(shared: Path) -> None:
    path = shared / "catalog.db"
    with open_catalog(f"sqlite:///{path}") as catalog:
        catalog.put_artifact(digest(1), manifest())
        catalog.put_ref(entry("fresh", digest(1)))
        for part in shared.iterdir():
            part.chmod(0o444)
        shared.chmod(0o555)
        assert as_reader(path) == ["fresh", "RefusedError"]
        shared.chmod(0o755)


# PostgreSQL


@pytest.fixture
def database(postgres: Postgres) -> str:
    url = postgres.new_database()
    upgrade(url)
    return url


def test_a_server_that_does_not_answer() -> None:
    (port,) = free_ports(1)
    with pytest.raises(errors.UnavailableError) as caught:
        open_catalog(f"postgresql+psycopg://ada@127.0.0.1:{port}/maskreg")
    assert caught.value.hint == f"pg_isready -h 127.0.0.1 -p {port}"


def test_a_database_that_is_not_there(database: str) -> None:
    with pytest.raises(errors.ConfigError, match="nowhere") as caught:
        open_catalog(str(make_url(database).set(database="nowhere")))
    assert caught.value.hint == f"createdb -h 127.0.0.1 -p {make_url(database).port} nowhere"


@pytest.fixture
def guarded(database: str) -> Iterator[str]:
    """The database as a user who needs a password, ``open sesame``, and can only read."""
    plain = database.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as admin:
        admin.execute("CREATE ROLE guarded LOGIN PASSWORD 'open sesame'")
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guarded")
        rows = admin.execute("SHOW hba_file").fetchone()
        assert rows is not None
        rules = Path(rows[0])
        before = rules.read_text()
        rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + before)
        admin.execute("SELECT pg_reload_conf()")
        yield str(make_url(database).set(username="guarded"))
        rules.write_text(before)
        admin.execute("SELECT pg_reload_conf()")
        admin.execute("DROP OWNED BY guarded")
        admin.execute("DROP ROLE guarded")


def test_credentials_come_from_the_environment_and_are_never_shown(
    guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(errors.NotAllowedError) as caught:
        open_catalog(guarded)
    assert "~/.pgpass" in caught.value.hint
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    with pytest.raises(errors.NotAllowedError, match='"guarded"') as caught:
        open_catalog(guarded)
    assert "hunter2" not in repr(caught.value) + repr(caught.value.__cause__)
    monkeypatch.setenv("PGPASSWORD", "open sesame")
    with open_catalog(guarded) as catalog:
        assert catalog.search() == []
        with pytest.raises(errors.NotAllowedError, match=" artifacts") as caught:
            catalog.put_artifact(digest(1), manifest())
    assert 'GRANT ALL ON ALL TABLES IN SCHEMA public TO "guarded";' in caught.value.hint
    assert " psql -h 127.0.0.1 " in caught.value.hint


def test_a_server_that_comes_back_is_used_again(database: str) -> None:
    with open_catalog(database) as catalog:
        with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert catalog.search() == []

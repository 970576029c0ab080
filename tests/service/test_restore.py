"""Backups of a server: what is lost without one, and what comes back from the store alone."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from maskreg.catalog.query import Query
from maskreg.errors import UnauthenticatedError
from maskreg.service.auth.database import upgrade_server
from maskreg.service.auth.roles import Role
from maskreg.service.auth.tokens import Scope
from maskreg.service.context import Service
from maskreg.service.start import Options, open_service
from maskreg.workspace import db
from maskreg.workspace.log import log
from maskreg.workspace.tag import annotate, remove
from tests.servers import Postgres, find_program
from tests.service.labs import fill
from tests.service.serving import ROOT

BACKUP = "VACUUM INTO ?"
"""What docs/how-to/deploy.md says: a consistent copy of a database that is in use."""


def facts(service: Service) -> object:
    """What can be found in the served registry, and what happened to its names."""
    results = service.registry.search(Query())
    assert results.left_out == ()
    rows = [replace(row, rlvr_overlap=None, rlvr_against=None) for row in results.results]
    logs = [log(ref, remote=service.remote, workspace=service.workspace) for ref in ("team/opd:v1", "team/rlvr")]
    return rows, logs


def used(service: Service, folder: Path) -> str:
    """Let things happen on a server; gives a token."""
    fill(service.workspace, folder)
    annotate("team/opd:v1", description="written later", workspace=service.workspace)
    remove("team/rlvr", workspace=service.workspace)
    return service.accounts.tokens.create("ada", Scope("team", Role.WRITER), ROOT).token


def test_all_but_the_accounts_comes_back_from_the_store(tmp_path: Path) -> None:
    home, restored = tmp_path / "home", tmp_path / "restored"
    with open_service(Options(home=str(home))) as service:
        token = used(service, tmp_path)
        before = facts(service)
        # While the server runs.
        with sqlite3.connect(home / "service.db") as connection:
            connection.execute(BACKUP, [str(tmp_path / "backup.db")])
        service.accounts.tokens.create("late", Scope("team", Role.READER), ROOT)
    shutil.copytree(home, restored, ignore=shutil.ignore_patterns("*.db", "*.db-*"))
    with open_service(Options(home=str(restored))) as service:
        db.rebuild(workspace=service.workspace)
        assert facts(service) == before
        assert service.accounts.tokens.first() is not None
        with pytest.raises(UnauthenticatedError):
            service.accounts.authenticate(token)
    (restored / "service.db").unlink()
    shutil.copy(tmp_path / "backup.db", restored / "service.db")
    with open_service(Options(home=str(restored))) as service:
        assert facts(service) == before
        assert service.accounts.authenticate(token).role("team") is Role.WRITER


def test_a_dump_of_the_database_brings_the_accounts_back(tmp_path: Path, postgres: Postgres) -> None:
    (tmp_path / "store").mkdir()
    old, new = postgres.new_database(), postgres.new_database()
    upgrade_server(old)
    with open_service(Options(store=str(tmp_path / "store"), catalog=old)) as service:
        token = service.accounts.tokens.create("ada", Scope("team", Role.WRITER), ROOT).token
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    dump, load = (str(find_program(name, folders, "apt-get install postgresql")) for name in ("pg_dump", "pg_restore"))
    plain = [url.replace("+psycopg", "") for url in (old, new)]
    file = str(tmp_path / "maskreg.dump")
    subprocess.run([dump, "--format=custom", f"--file={file}", plain[0]], check=True)
    subprocess.run([load, "--exit-on-error", "--no-owner", f"--dbname={plain[1]}", file], check=True)
    with open_service(Options(store=str(tmp_path / "store"), catalog=new)) as service:
        assert service.accounts.authenticate(token).role("team") is Role.WRITER

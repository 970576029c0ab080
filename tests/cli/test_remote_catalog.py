"""A remote whose catalog is down, missing, forbidden or without a schema: who says so, and what to do first."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from maskreg.catalog.schema import upgrade
from tests.cli.conftest import Run
from tests.servers import Postgres, free_ports

CASES = {
    "down": (69, "pg_isready -h 127.0.0.1 -p "),
    "missing": (78, "createdb -h 127.0.0.1 -p "),
    "forbidden": (77, "as its owner: psql -h 127.0.0.1 -p "),
}


@pytest.fixture
def unusable(postgres: Postgres) -> dict[str, str]:
    url = postgres.new_database()
    upgrade(url)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS powerless")
        admin.execute("CREATE ROLE powerless LOGIN")
    (port,) = free_ports(1)
    changed = {"down": {"port": port}, "missing": {"database": "nowhere"}, "forbidden": {"username": "powerless"}}
    return {case: str(make_url(url).set(**parts)) for case, parts in changed.items()}  # type: ignore[arg-type]


def test_a_remote_whose_catalog_cannot_be_used(
    run: Run, artifact: str, unusable: dict[str, str], tmp_path: Path
) -> None:
    for case, (status, step) in CASES.items():
        refused = run("remote", "add", "new", tmp_path / "lab", "--catalog", unusable[case], status=status)
        assert f"next: {step}" in refused.err
    assert run("remote", "list").out == ""
    run("remote", "add", "lab", tmp_path / "lab")
    run("push", "toy-opd:v1")
    for case, (status, step) in CASES.items():
        run("config", "set", "remotes.lab.catalog", unusable[case])
        assert f"next: {step}" in run("remote", "check", "lab", status=status).err
        assert f"next: {step}" in run("db", "check", "--remote", "lab", status=status).err
        verified = run("verify", "--all", "--remote", "lab", status=status)
        assert f"next: {step}" in verified.err
        assert verified.out == ""
        assert ", the catalog" not in verified.err
        document = run("verify", "--all", "--remote", "lab", "--json", status=status).json
        assert (document["ok"], document["catalog"], document["damaged"]) == (False, False, [])
        assert document["unchecked"]["hint"].startswith(step)
        (finding,) = (row for row in run("doctor", "--json", status=1).json if row["what"] == "catalog lab")
        assert (finding["status"], finding["hint"].startswith(step)) == ("bad", True)
    run("config", "set", "remotes.lab.catalog", unusable["down"])
    said = run("push", "toy-opd:v1", "--tag", "v2").err
    assert "; next: pg_isready " in said
    assert "; then: maskreg db rebuild --remote lab" in said


def test_a_remote_whose_catalog_has_no_schema(run: Run, artifact: str, postgres: Postgres, tmp_path: Path) -> None:
    step = "next: maskreg db upgrade --remote lab\n"
    assert step in run("remote", "add", "lab", tmp_path / "lab", "--catalog", postgres.new_database()).err
    assert step in run("remote", "check", "lab", status=78).err
    assert step in run("verify", "--all", "--remote", "lab", status=78).err
    assert step in run("doctor", status=1).out
    run("db", "upgrade", "--remote", "lab")
    assert "the catalog is usable" in run("remote", "check", "lab").out
    run("push", "toy-opd:v1")
    assert ", the catalog" in run("verify", "--all", "--remote", "lab").err

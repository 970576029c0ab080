"""Signed tags behind a service: it signs for people who have a token and no key, and they check what it serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.registry.keys import service_key
from maskreg.service.app import create_app
from maskreg.service.context import Service
from maskreg.store import FileStore
from maskreg.store.reflog import RefLog
from tests.cli.test_service import Person, digest_of, people, pushed
from tests.e2e.running import Person as User
from tests.service.serving import listening, service_in

__all__ = ["people", "pushed"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with service_in(tmp_path / "served") as service:
        yield service


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    with listening(create_app(service)) as url:
        yield url


@pytest.fixture
def key(service: Service, tmp_path: Path) -> str:
    """The key that the service signs with."""
    signer = service_key(tmp_path / "served")
    service.registry.trust.signer = signer
    return signer.key


def test_a_service_signs_what_people_without_a_key_push(
    key: str, service: Service, people: dict[str, Person], pushed: str, tmp_path: Path
) -> None:
    ada, bob, root = people["ada"], people["bob"], people["root"]
    assert key in bob("pull", "team/toy:v1").err
    ada("tag", "team/toy:v1", "v2", "--remote", "lab")
    root("rm", "team/toy:v1", "--remote", "lab", "-y")
    root("restore", "team/toy:v1", "--remote", "lab")
    report = bob("verify", "--signatures", "--all", "--remote", "lab", "--json").json
    assert [(tag["ref"], tag["state"], tag["key"]) for tag in report["tags"]] == [
        ("team/toy:v1", "signed", key),
        ("team/toy:v2", "signed", key),
    ]
    # A writer to the disk behind the service is found out.
    log, ref = RefLog(FileStore(tmp_path / "served")), Ref.parse("team/toy:v2")
    log.append(ref, after=log.head(ref), digest=Digest(pushed), card=Card(family="evil"), by="ada")
    assert key in bob("pull", "team/toy:v2", status=65).err
    assert digest_of(bob("pull", "team/toy:v1", "--json")) == pushed


def test_who_cannot_check_signatures_is_told_before_anything_travels(
    key: str, service: Service, url: str, pair: tuple[Path, Path], programs: Path | None, tmp_path: Path
) -> None:
    hidden = tmp_path / "hidden" / "cryptography"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError('not here', name='cryptography')")
    settings = {"PYTHONPATH": str(hidden.parent), "MASKREG_TOKEN": "writer-token"}
    ada = User(tmp_path / "ada", settings)
    able = User(tmp_path / "ada", {"MASKREG_TOKEN": "writer-token"}, programs)
    able.run("extract", *pair, "--name", "team/toy:v1")
    able.run("remote", "add", "lab", url)
    said = "error: checking a signature needs the package cryptography, which is not installed"
    refused = ada.run("push", "team/toy:v1", exit=78)
    assert refused.splitlines()[0] == said
    assert "[sign]" in refused
    assert not [key for prefix in ("artifacts/", "announced/", "refs/") for key in service.registry.store.list(prefix)]
    able.run("push", "team/toy:v1")
    reader = User(tmp_path / "bob", {**settings, "MASKREG_TOKEN": "reader-token"})
    reader.run("remote", "add", "lab", url)
    assert said in reader.run("pull", "team/toy:v1", exit=78)
    assert not list(reader.registry.rglob("manifest.json"))


def test_an_admin_of_a_project_signs_with_a_key_of_their_own(
    people: dict[str, Person], pushed: str, pair: tuple[Path, Path]
) -> None:
    ada, bob, root = people["ada"], people["bob"], people["root"]
    assert "admin" in ada("key", "create", "team", "--remote", "lab", status=77).err
    made = root("key", "create", "team", "--remote", "lab", "--fresh", "7d", "--json").json
    assert made["by"] == "root"
    bob("pull", "team/toy:v1")
    # The service has not this key, so it cannot sign for ada, and she cannot either.
    ada("annotate", "team/toy:v1", "--family", "other")
    assert made["key"] in ada("push", "team/toy:v1", status=77).err
    root("pull", "team/toy:v1")
    root("annotate", "team/toy:v1", "--family", "other")
    root("push", "team/toy:v1")
    root("key", "refresh", "team", "--remote", "lab")
    ada("key", "refresh", "team", "--remote", "lab", status=77)
    report = bob("verify", "--signatures", "--all", "--remote", "lab", "--json").json
    assert [(tag["state"], tag["key"]) for tag in report["tags"]] == [("signed", made["key"])]
    new = root("key", "rotate", "team", "--remote", "lab", "--json").json["key"]
    assert new in bob("pull", "team/toy:v1").err

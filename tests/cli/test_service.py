"""A service as the remote of two people: what each can push, pull and see with a token of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from maskreg.service.app import create_app
from tests.cli.conftest import Done, Run
from tests.service.serving import ADMIN, listening, service_in


@dataclass(frozen=True)
class Person:
    """A user with a home and a token."""

    name: str
    token: str
    run: Run
    folder: Path
    environ: pytest.MonkeyPatch

    def __call__(self, *args: str | Path, status: int = 0) -> Done:
        home = self.folder / self.name
        for variable, value in (("HOME", home), ("CONFIG", home / "config.toml"), ("TOKEN", self.token)):
            self.environ.setenv(f"MASKREG_{variable}", str(value))
        return self.run(*args, status=status)


def digest_of(pulled: Done) -> str:
    """The digest in what a pull writes for a pipe."""
    return str(json.loads(pulled.out.splitlines()[0])["digest"])


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with service_in(tmp_path / "served") as service, listening(create_app(service)) as url:
        yield url


@pytest.fixture
def people(run: Run, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Person]:
    """A writer and a reader of the project team, a writer of another project, and the admin of the server."""
    tokens = {"ada": "writer-token", "bob": "reader-token", "eve": "stranger-token", "root": ADMIN}
    people = {name: Person(name, token, run, tmp_path, monkeypatch) for name, token in tokens.items()}
    for person in people.values():
        person("remote", "add", "lab", url)
    return people


@pytest.fixture
def pushed(people: dict[str, Person], pair: tuple[Path, Path]) -> str:
    """The digest of ``team/toy:v1``, which ada pushed."""
    ada = people["ada"]
    ada("extract", *pair, "--name", "team/toy:v1", "--family", "toy", "--method", "opd")
    return str(ada("push", "team/toy:v1", "--json").json[0]["digest"])


def test_what_a_writer_pushes_a_reader_pulls_and_applies(
    people: dict[str, Person], pushed: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    bob = people["bob"]
    assert digest_of(bob("pull", "team/toy:v1", "--json")) == pushed
    bob("apply", "team/toy:v1", "--source", pair[0], "-o", tmp_path / "patched")
    assert (tmp_path / "patched" / "model.safetensors").read_bytes() == (pair[1] / "model.safetensors").read_bytes()
    assert "team/toy" in bob("list", "--remote", "lab").out
    assert bob("show", "team/toy:v1", "--remote", "lab", "--json").json["digest"] == pushed
    (entry,) = bob("log", "team/toy:v1", "--remote", "lab", "--json").json
    assert entry["by"] == "ada"


def test_a_reader_may_not_push_and_a_stranger_sees_nothing(people: dict[str, Person], pushed: str) -> None:
    bob, eve = people["bob"], people["eve"]
    bob("pull", "team/toy:v1")
    bob("annotate", "team/toy:v1", "--description", "mine")
    assert "writer" in bob("push", "team/toy:v1", status=77).err
    eve("pull", "team/toy:v1", status=66)
    eve("show", f"team/toy:v1@{pushed}", "--remote", "lab", status=66)
    assert eve("list", "--remote", "lab", "--json").json["names"] == []


def test_an_admin_renames_on_a_service_and_of_a_writer_nothing_is_half_done(
    people: dict[str, Person], pushed: str
) -> None:
    ada, root = people["ada"], people["root"]
    for old, new, options in (("team/toy:v1", "team/fresh:v1", ()), ("team/toy", "team/fresh", ("--all",))):
        refused = ada("mv", old, new, *options, "--remote", "lab", status=77).err
        assert "maskreg tag team/toy:v1 team/fresh:v1 --remote lab" in refused
        assert [name["ref"] for name in ada("list", "--remote", "lab", "--json").json["names"]] == ["team/toy:v1"]
    root("mv", "team/toy:v1", "team/fresh:v1", "--remote", "lab")
    names = [name["ref"] for name in ada("list", "--remote", "lab", "--json").json["names"]]
    assert names == ["team/fresh:v1"]
    assert digest_of(ada("pull", "team/fresh:v1", "--json")) == pushed


def test_what_was_pulled_is_a_cache_and_what_was_made_is_not(
    people: dict[str, Person], pushed: str, pair: tuple[Path, Path]
) -> None:
    bob = people["bob"]
    bob("pull", "team/toy:v1")
    bob("extract", *pair, "--name", "mine", "--mask-only")
    (item,) = bob("cache", "ls", "--json").json
    assert (item["digest"], item["refs"]) == (pushed, ["team/toy:v1"])
    bob("config", "set", "cache_size", "1KB")
    assert bob("cache", "prune", "--dry-run", "--json").json["freed"] == item["size"]
    assert bob("cache", "prune", "--json").json["freed"] == item["size"]
    assert bob("cache", "ls", "--json").json == []
    assert bob("show", "mine", "--json").status == 0
    bob("pull", "team/toy:v1")
    bob("cache", "rm", "team/toy:v1")
    bob("apply", "team/toy:v1", "--source", pair[0], status=66)
    bob("pull", "team/toy:v1", "--json")


def test_a_server_is_added_before_the_login(
    url: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "ada"))
    monkeypatch.setenv("MASKREG_CONFIG", str(tmp_path / "ada.toml"))
    assert f"maskreg login {url}" in run("remote", "add", "lab", url).err
    assert f"maskreg login {url}" in run("remote", "check", "lab", status=77).err
    monkeypatch.setenv("MASKREG_TOKEN", "writer-token")
    run("remote", "check", "lab")

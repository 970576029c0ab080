"""A seeded sample of the attacks that scripts/attack makes in their thousands."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.e2e.attack.attacks import attacking
from tests.e2e.attack.damages import Damages, Tally
from tests.e2e.attack.kills import Kills
from tests.e2e.attack.people import shared_clients
from tests.e2e.attack.stage import Site, Stage, set_up
from tests.servers import S3Server

SEED = 11
DAMAGES = {"local": 6, "folder": 3, "seaweed": 1}


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Everything in folders; each attack leaves it as it was."""
    folder = tmp_path_factory.mktemp("stage")
    return set_up(folder, Site((folder / "remote").as_uri()))


@pytest.fixture
def in_bucket(tmp_path: Path, s3_server: S3Server) -> Stage:
    """The same with the remote in a bucket."""
    return set_up(tmp_path, Site(f"s3://{s3_server.new_bucket()}/team", s3_server.endpoint, s3_server.env()))


@pytest.mark.torch
@pytest.mark.parametrize("where", DAMAGES)
def test_no_damage_is_silent(where: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally()
    with shared_clients():
        stage = request.getfixturevalue("in_bucket" if where == "seaweed" else "on_disk")
        attack = Damages(stage, remote=where != "local")
        for number in range(DAMAGES[where]):
            attack.run(SEED, number, tally)
    assert tally.faults == []
    assert any(what.endswith("refused") for what in tally.counts)
    if where == "local":
        # Readers that answer as if nothing were damaged are found out.
        blind = Tally()
        monkeypatch.setattr(attack, "answer", lambda reader, _=None: attack.usual[reader])
        for number in range(1, 6):
            if not blind.faults:
                attack.run(SEED, number, blind)
        assert blind.faults


@pytest.mark.torch
def test_a_kill_leaves_nothing_torn(on_disk: Stage) -> None:
    tally = Tally()
    attack = Kills(on_disk, KILLED)
    for number in range(len(KILLED)):
        attack.run(SEED, number, tally)
    assert tally.faults == []
    assert any(what.endswith(": killed") for what in tally.counts)


KILLED = ("extract", "push moved", "pull repair", "apply force", "gc remote", "db rebuild")
"""Commands of which each leaves something else behind when it is killed."""

OTHERS = {
    "chains": ([0], ["killed"]),
    "replicas": ([34], ["remote: killed"]),
    "polls": ([0], ["killed"]),
    "served": ([0, 1], ["client crashes: ", "server crashes: "]),
    "outages": ([0, 1], ["bucket crashes: ", "database hangs: "]),
    "faults": ([0], ["fault "]),
}
"""Numbers of the others that are done, and what has to have happened; the bucket crashes under replicas."""

FOLLOWED = ("chains", "replicas", "polls")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.torch if name in FOLLOWED else ()) for name in OTHERS]
)
def test_what_is_struck_goes_on(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    numbers, happened = OTHERS[name]
    tally = Tally()
    bucket, database = (partial(request.getfixturevalue, fixture) for fixture in ("s3_server", "postgres"))
    with attacking(name, tmp_path, bucket=bucket, database=database) as attack:
        for number in numbers:
            attack.run(SEED, number, tally)
    assert tally.faults == []
    assert [words for words in happened if not any(words in what for what in tally.counts)] == []

"""A seeded sample of the attacks that scripts/attack makes in their thousands."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.attack.chains import Chains
from tests.e2e.attack.damages import Damages, Tally
from tests.e2e.attack.faults import rounds
from tests.e2e.attack.kills import Kills, world_of
from tests.e2e.attack.outages import KINDS, Outages
from tests.e2e.attack.people import shared_clients
from tests.e2e.attack.served import ServedKills
from tests.e2e.attack.stage import Site, set_up
from tests.e2e.attack.writers import writers
from tests.servers import S3Server, SeaweedFS, start_postgres

SEED = 11
DAMAGES = {"local": 20, "folder": 16, "seaweed": 5, "moto": 2}
LINKS = 6
ROUNDS = 1
SERVED = 8


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """Where the remote is, by the name of the place that is attacked."""
    where = request.param
    if where in ("local", "folder"):
        return Site((tmp_path / "remote").as_uri())
    server: S3Server = request.getfixturevalue("s3_server" if where == "seaweed" else "other_s3_server")
    return Site(f"s3://{server.new_bucket()}/team", server.endpoint, server.env())


@pytest.mark.torch
@pytest.mark.parametrize(("site", "where"), [(where, where) for where in DAMAGES], indirect=["site"], ids=DAMAGES)
def test_no_damage_is_silent(tmp_path: Path, site: Site, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally()
    with shared_clients():
        attack = Damages(set_up(tmp_path, site), remote=where != "local")
        for number in range(DAMAGES[where]):
            attack.run(SEED, number, tally)
    assert tally.faults == []
    assert any(what.endswith("refused") for what in tally.counts)
    if where == "local":
        # Readers that answer as if nothing were damaged are found out.
        blind = Tally()
        monkeypatch.setattr(attack, "answer", lambda reader, _: attack.usual[reader])
        for number in range(1, 6):
            attack.run(SEED, number, blind)
        assert blind.faults


@pytest.mark.torch
def test_a_kill_leaves_nothing_torn(tmp_path: Path) -> None:
    tally = Tally()
    made = set_up(tmp_path, Site((tmp_path / "remote").as_uri()))
    world = world_of(made)
    for number, writer in enumerate(writers(made)):
        # At a point of its work, and after some time, in turn.
        Kills(made, writer, world).run(SEED, number % 2, tally)
    assert tally.faults == []
    assert any(what.endswith(": killed") for what in tally.counts)


@pytest.mark.torch
def test_a_chain_survives_kills_of_either_side(tmp_path: Path) -> None:
    tally = Tally()
    attack = Chains(tmp_path)
    for number in range(LINKS):
        attack.run(SEED, number, tally)
    assert tally.faults == []
    assert tally.counts["publish: killed"]
    assert tally.counts["follow: killed"]


def test_a_service_and_its_clients_survive_kills(tmp_path: Path) -> None:
    tally = Tally()
    with closing(ServedKills(tmp_path)) as attack:
        for number in range(SERVED):
            attack.run(SEED, number, tally)
    assert tally.faults == []
    assert any(what.endswith("killed") for what in tally.counts)


def test_a_service_and_its_clients_survive_outages_of_its_bucket_and_its_database(tmp_path: Path) -> None:
    tally = Tally()
    with (
        closing(SeaweedFS()) as bucket,
        closing(start_postgres()) as database,
        closing(Outages(tmp_path, bucket, database)) as attack,
    ):
        for number in range(len(KINDS)):
            attack.run(SEED, number, tally)
    assert tally.faults == []
    assert len({what for what in tally.counts if " exits " in what}) >= len(KINDS)


def test_what_is_reported_behind_a_failing_network_is_there(tmp_path: Path, s3_server: S3Server) -> None:
    tally = Tally()
    with rounds(tmp_path, s3_server) as attack:
        for number in range(ROUNDS):
            attack.run(SEED, number, tally)
        assert attack.faults.total
    assert tally.faults == []

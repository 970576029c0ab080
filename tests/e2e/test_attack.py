"""A seeded sample of the attacks that scripts/attack makes in their thousands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.attack.alone import attacking
from tests.e2e.attack.damages import Damages, Tally
from tests.e2e.attack.kills import Kills, world_of
from tests.e2e.attack.outages import KINDS
from tests.e2e.attack.people import shared_clients
from tests.e2e.attack.stage import Site, set_up
from tests.e2e.attack.writers import writers
from tests.servers import S3Server

SEED = 11
DAMAGES = {"local": 20, "folder": 16, "seaweed": 5, "moto": 2}


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
    # One way to call each command.
    chosen = {writer.name.partition(" ")[0]: writer for writer in reversed(writers(made))}
    for number, writer in enumerate(chosen.values()):
        # At a point of its work, and after some time, in turn.
        Kills(made, writer, world).run(SEED, number % 2, tally)
    assert tally.faults == []
    assert any(what.endswith(": killed") for what in tally.counts)


ALONE = {
    "chains": (6, ["publish: killed", "follow: killed"]),
    "served": (8, ["killed"]),
    "outages": (len(KINDS), [f"{name} {how}: " for name, how in KINDS]),
    "faults": (1, []),
}
"""How often each of the others is done, and what has to have happened."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.torch if name == "chains" else ()) for name in ALONE]
)
def test_what_is_struck_goes_on(tmp_path: Path, name: str) -> None:
    rounds, happened = ALONE[name]
    tally = Tally()
    with attacking(name, tmp_path) as attack:
        for number in range(rounds):
            attack.run(SEED, number, tally)
    assert tally.faults == []
    assert [words for words in happened if not any(words in what for what in tally.counts)] == []
    assert name != "faults" or attack.faults.total  # type: ignore[attr-defined]

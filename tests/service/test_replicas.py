"""What followers say of themselves: remembered for a while, bounded, counted against the log, and made metrics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import maskreg
from maskreg.ref import Ref
from maskreg.service import replicas as module
from maskreg.service.replicas import Replicas, RunsObserver
from maskreg.settings import Remote
from maskreg.settings.credentials import VARIABLE
from maskreg.sync.node import NodeVersions
from tests.service.labs import Lab
from tests.service.serving import ADMIN, ROOT, headers, listening
from tests.workspace.conftest import Lab as Pair
from tests.workspace.conftest import lab as pair

__all__ = ["pair"]

TAG = "/api/v1/projects/team/refs/opd/v1"
OPD = Ref.parse("team/opd:v1")


def heard(lab: Lab, replicas: Replicas, ref: Ref = OPD) -> list[tuple[str, int, float]]:
    return [(each.name, each.behind, each.silent_s) for each in replicas.of(lab.service, ref)]


def test_a_replica_is_remembered_until_it_is_silent(lab: Lab) -> None:
    now = [0.0]
    replicas = Replicas(clock=lambda: now[0])
    replicas.note(OPD, "a", lab.digests["opd"])
    now[0] = 100
    replicas.note(OPD, "b", lab.digests["opd"])
    assert heard(lab, replicas) == [("a", 0, 100), ("b", 0, 0)]
    maskreg.tag("team/rlvr", OPD, workspace=lab.workspace)
    replicas.note(OPD, "a", lab.digests["rlvr"])
    # One that has an artifact that the tag never pointed to has all versions before it.
    replicas.note(OPD, "c", lab.digests["hidden"])
    assert heard(lab, replicas) == [("c", 2, 0), ("b", 1, 0), ("a", 0, 0)]
    now[0] = 100 + module.SILENCE_S
    assert heard(lab, replicas) == []


def test_only_so_many_are_remembered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REPLICAS", 2)
    monkeypatch.setattr(module, "MOST_RUNS", 2)
    replicas = Replicas()
    for name in "abc":
        replicas.note(OPD, name, lab.digests["opd"])
    assert [name for name, *_ in heard(lab, replicas)] == ["b", "c"]
    for project in ("x", "y"):
        replicas.note(Ref(project, "opd", "v1"), "a", lab.digests["opd"])
    assert heard(lab, replicas) == []


def test_processes_of_a_server_know_the_replicas_of_each_other(lab: Lab, tmp_path: Path) -> None:
    now = [1000.0]
    one, other = (Replicas(str(tmp_path), lambda: now[0]) for _ in range(2))
    one.note(OPD, "a", lab.digests["opd"])
    one.note(OPD, "b", lab.digests["opd"])
    one.share()
    assert heard(lab, other) == [("a", 0, 0), ("b", 0, 0)]
    now[0] = 1100
    # It came back to the other process, with the next version.
    maskreg.tag("team/rlvr", OPD, workspace=lab.workspace)
    other.note(OPD, "a", lab.digests["rlvr"])
    assert heard(lab, other) == [("b", 1, 100), ("a", 0, 0)]
    now[0] = 1000 + module.SILENCE_S
    assert [name for name, *_ in heard(lab, other)] == ["a"]


def test_who_may_read_a_tag_is_remembered_by_a_clean_name(lab: Lab) -> None:
    digest = lab.digests["opd"]
    for name, token, unless, status in (
        ("good", "reader-token", digest, 200),
        ("nothing-said", "reader-token", "", 200),
        ("stranger", "stranger-token", digest, 404),
        *((wrong, "reader-token", digest, 422) for wrong in ("a b", "x" * 101, "<b>", "line\n")),
    ):
        params = {"replica": name, **({"unless": unless} if unless else {})}
        assert lab.client(token).get(TAG, params=params).status_code == status, name
    # A visitor can follow, and is not remembered.
    lab.service.accounts.projects.change("team", ROOT, public=True)
    assert lab.client("").get(TAG, params={"replica": "visitor", "unless": digest}).status_code == 200
    assert [each.name for each in lab.app.state.replicas.of(lab.service, OPD)] == ["good"]


def test_metrics_have_the_age_of_a_run_and_the_lag_of_its_replicas(
    lab: Lab, observer: RunsObserver, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "writer-token")
    steps = pair.states(2)
    with listening(lab.app) as url:
        settings = replace(pair.workspace("ada").settings, remotes={"team": Remote("team", url)})
        with (
            maskreg.Workspace(settings) as space,
            maskreg.Publisher("team/run", source=steps[0], remote="team", workspace=space) as publisher,
            maskreg.follow_folder(
                "team/run", pair.folder / "served", steps[0], remote="team", every_s=0, workspace=space
            ) as follower,
        ):
            published = publisher.publish(steps[1])
            assert published is not None
            follower.step()
            follower.pause(0.01)
            assert exposed(lab, observer)["maskreg_run_replica_lag"] == 0
            publisher.publish(steps[2])
            metrics = exposed(lab, observer)
            assert (metrics["maskreg_run_replicas"], metrics["maskreg_run_replica_lag"]) == (1, 1)
            assert 0 <= metrics["maskreg_run_version_age_seconds"] < 600
            follower.step()
            follower.pause(0.01)
            assert exposed(lab, observer)["maskreg_run_replica_lag"] == 0
            # So does a server of vLLM, whose workers share versions; another process would be another replica.
            with NodeVersions("team/run", steps[0], remote="team", workspace=space) as versions:
                versions.tell(None)
                versions.tell(versions.find(str(published.digest)))
            assert exposed(lab, observer)["maskreg_run_replica_lag"] == 1
    maskreg.remove("team/run", workspace=lab.workspace)
    assert exposed(lab, observer) == {}


@pytest.fixture
def observer(lab: Lab) -> RunsObserver:
    return RunsObserver(lab.service, lab.app.state.replicas)


def exposed(lab: Lab, observer: RunsObserver) -> dict[str, float]:
    """The metrics of the run, by name."""
    observer.turn()
    lines = lab.client(ADMIN).get("/metrics", headers=headers(ADMIN)).text.splitlines()
    rows = [line.rpartition(" ") for line in lines if 'ref="team/run"' in line]
    return {name.partition("{")[0]: float(value) for name, _, value in rows}

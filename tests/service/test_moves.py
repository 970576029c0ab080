"""Requests that wait for a tag to move: when they are answered, and what they hold meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import httpx2
import pytest

import maskreg
from maskreg.service.auth.roles import Role
from maskreg.service.auth.tokens import Scope
from maskreg.settings import Remote, Settings
from maskreg.settings.credentials import VARIABLE
from maskreg.workspace.workspace import Workspace
from tests.service.labs import Lab
from tests.service.serving import ROOT, WEB, accounts_in, headers, listening, until
from tests.workspace.conftest import Lab as Pair
from tests.workspace.conftest import contents
from tests.workspace.conftest import lab as pair

__all__ = ["pair"]

TAG = "/api/v1/projects/team/refs/opd/v1"


@pytest.fixture
def url(lab: Lab) -> Iterator[str]:
    with listening(lab.app) as url:
        yield url


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as threads:
        yield threads


def ask(url: str, unless: str = "", *, wait: float = 60, token: str = "reader-token") -> httpx2.Response:
    params = {"wait": str(wait), **({"unless": unless} if unless else {})}
    return WEB.get(f"{url}{TAG}", params=params, headers=headers(token))


def asked(lab: Lab, url: str, threads: ThreadPoolExecutor, count: int = 1) -> list[Future[httpx2.Response]]:
    """Requests that wait for the tag to leave where it is."""
    answers = [threads.submit(ask, url, lab.digests["opd"]) for _ in range(count)]
    until(lambda: len(lab.app.state.moves) == count)
    return answers


def move(lab: Lab) -> str:
    maskreg.tag("team/rlvr", "team/opd:v1", workspace=lab.workspace)
    return str(lab.digests["rlvr"])


def test_many_requests_wait_without_threads_until_the_tag_moves(
    lab: Lab, url: str, threads: ThreadPoolExecutor
) -> None:
    answers = asked(lab, url, threads, 60)
    # A server has 40 threads for requests.
    assert WEB.get(f"{url}/api/v1/projects", headers=headers("reader-token")).status_code == 200
    assert not any(answer.done() for answer in answers)
    digest = move(lab)
    assert {answer.result().json()["digest"] for answer in answers} == {digest}
    assert len(lab.app.state.moves) == 0


def test_a_tag_that_another_process_moves_ends_the_wait(lab: Lab, url: str, threads: ThreadPoolExecutor) -> None:
    (answer,) = asked(lab, url, threads)
    # Another server on the same database, or a client of it.
    with Workspace(Settings.load(home=str(lab.workspace.root))) as other:
        maskreg.tag("team/rlvr", "team/opd:v1", workspace=other)
    assert answer.result().json()["digest"] == lab.digests["rlvr"]


def test_there_is_nothing_to_wait_for(lab: Lab, url: str) -> None:
    digest = lab.digests["opd"]
    assert ask(url, digest, wait=0.2).json()["digest"] == digest
    assert ask(url, unless=lab.digests["rlvr"]).json()["digest"] == digest
    assert ask(url).json()["digest"] == digest
    assert ask(url, digest, wait=301).status_code == 422
    assert ask(url, digest, wait=-1).status_code == 422
    assert ask(url, unless="v1").status_code == 422
    assert ask(url, token="stranger-token", unless=digest).status_code == 404


def test_a_client_that_leaves_is_not_waited_for(lab: Lab, url: str) -> None:
    with pytest.raises(httpx2.ReadTimeout):
        params = {"wait": "60", "unless": lab.digests["opd"]}
        WEB.get(f"{url}{TAG}", params=params, headers=headers("reader-token"), timeout=1)
    until(lambda: len(lab.app.state.moves) == 0)


def test_a_server_that_stops_ends_the_wait(lab: Lab, threads: ThreadPoolExecutor) -> None:
    with listening(lab.app) as url:
        # The client gives up before this wait is over.
        answer = threads.submit(ask, url, lab.digests["opd"], wait=300)
        until(lambda: len(lab.app.state.moves) == 1)
    assert answer.result().status_code == 200


def test_a_tag_that_is_removed_and_rights_that_end_are_told(lab: Lab, url: str, threads: ThreadPoolExecutor) -> None:
    with closing(accounts_in(f"sqlite:///{lab.workspace.root / 'service.db'}")) as accounts:
        token = accounts.tokens.create("carl", Scope("team", Role.READER), ROOT)
        answers = [
            threads.submit(ask, url, token=each, unless=lab.digests["opd"]) for each in ("reader-token", token.token)
        ]
        until(lambda: len(lab.app.state.moves) == 2)
        accounts.tokens.revoke(token.id, ROOT)
    move(lab)
    assert [answer.result().status_code for answer in answers] == [200, 401]
    answer = threads.submit(ask, url, unless=lab.digests["rlvr"])
    until(lambda: len(lab.app.state.moves) == 1)
    maskreg.remove("team/opd:v1", workspace=lab.workspace)
    assert answer.result().status_code == 404


def test_a_follower_learns_of_a_link_without_looking(
    lab: Lab, url: str, pair: Pair, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "writer-token")
    settings = replace(pair.workspace("ada").settings, remotes={"team": Remote("team", url)})
    steps = pair.states(3)
    out = pair.folder / "served"
    with (
        maskreg.Workspace(settings) as space,
        maskreg.Publisher("team/run", source=steps[0], remote="team", workspace=space) as publisher,
        # It never looks by itself.
        maskreg.follow_folder("team/run", out, steps[0], remote="team", every_s=3600, workspace=space) as follower,
    ):
        publisher.publish(steps[1])
        follower.step()
        for step in (2, 3):
            followed = threads.submit(follower.wait, 60)
            until(lambda: len(lab.app.state.moves) == 1)
            publisher.publish(steps[step])
            assert followed.result() is not None
            assert contents((out / "current").resolve()) == contents(steps[step])
        assert follower.wait(0.2) is None

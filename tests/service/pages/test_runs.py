"""The pages of runs: with no run, one version, several, anchors and deleted links; and to whom they are shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.service.app import create_app
from maskreg.service.pages import runs
from maskreg.words import ago
from tests.checkpoints import make_checkpoint, moved
from tests.service.pages.conftest import EVIL, LAYERS, tensors
from tests.service.serving import ADMIN, headers, service_in

RUN = "/runs/team/run:latest"


def rows(text: str, caption: str) -> list[list[str]]:
    """The cells of a table, by its caption."""
    body = text.partition(caption)[2].partition("<tbody")[2].partition("</tbody>")[0]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in body.split("</tr>")[:-1]]
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in cells]


def serving_run(folder: Path, count: int, **how: Any) -> TestClient:
    """A client of a server with a run of so many versions, ``team/long``."""
    states = [tensors()]
    for step in range(count):
        states.append({name: moved(tensor, 0.05, 100 * step) for name, tensor in states[-1].items()})
    paths = [make_checkpoint(folder / f"state-{n}", state) for n, state in enumerate(states)]
    with maskreg.Workspace(maskreg.Settings(home=folder / "home", config_path=folder / "config.toml")) as space:
        maskreg.extract(paths[0], paths[-1], "team/pair", workspace=space)
        with maskreg.Publisher("team/long", source=paths[0], workspace=space, **how) as publisher:
            for number, path in enumerate(paths[1:]):
                publisher.publish(path, meta={"step": str(number)})
    return TestClient(create_app(service_in(folder / "home")), headers=headers(ADMIN))


def test_readers_see_the_runs_of_their_projects(client: TestClient) -> None:
    assert [row[0] for row in rows(client.get("/runs").text, "Runs, with")] == ["team/run"]
    assert rows(client.get("/runs", headers=headers("stranger-token")).text, "Runs, with")[0][0] == "team/run"
    assert client.get("/runs/secret/plan:v1", headers=headers("reader-token")).status_code == 404
    assert client.get("/runs/team/nothing:latest").status_code == 404
    assert client.get(f"{RUN}?before=1").status_code == 422
    assert client.get(f"{RUN}?before=99").status_code == 404
    assert 'href="/runs/team/run:latest"' in client.get("/p/team/run:latest").text
    assert "/runs/team" not in client.get("/p/team/toy-opd:v1").text


def test_a_run_shows_its_versions_its_anchor_and_what_moved_by_layer(client: TestClient) -> None:
    text = client.get(RUN).text
    versions = rows(text, "Versions of run")
    assert [row[:2] for row in versions] == [["2", "2"], ["2", "2"], ["1", "1"]]
    assert ["anchor" in row[2] for row in versions] == [True, False, False]
    # The first version and the second one have all layers; the anchor is a line.
    cells = "".join(re.findall(r'<path fill="#[0-9a-f]{6}" d="([^"]+)"/>', text))
    drawn = {(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)", cells)}
    assert drawn == {(x, y) for x in (0, 1) for y in range(LAYERS)}
    assert f'class="anchor" d="M2.5 0v{LAYERS}"' in text
    assert EVIL not in text and "<img" not in text


def test_replicas_are_shown_with_their_lag(client: TestClient) -> None:
    digests = [Digest(f"sha256:{text}") for text in re.findall(r"@sha256:([0-9a-f]{64})", client.get(RUN).text)]
    replicas = client.app.state.replicas  # type: ignore[attr-defined]
    for name, digest in (("late:1", digests[-1]), ("early:2", digests[0])):
        replicas.note(Ref.parse("team/run"), name, digest)
    shown = rows(client.get(RUN).text, "Replicas of run")
    assert [row[:3] for row in shown] == [["late:1", "1", "1"], ["early:2", "0", "2"]]
    assert rows(client.get("/runs").text, "Runs, with")[0][4:6] == ["2", "1"]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_few_versions_are_listed_and_more_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(runs, "VERSIONS", 2)
    client = serving_run(tmp_path, count)
    text = client.get("/runs").text
    assert [row[0] for row in rows(text, "Runs, with")] == ["team/long"] * min(count, 1)
    assert ("maskreg.Publisher" in text) == (count == 0)
    answer = client.get("/runs/team/long:latest")
    assert answer.status_code == (200 if count else 404)
    assert len(rows(answer.text, "Versions of long")) == min(count, 2)
    wide, wider = (client.get(f"/runs/team/long:latest?last={last}") for last in (3, 1_001))
    assert re.findall(r'"number":\[(.*?)\]', wide.text) == ["2,3,4"] * (count // 4) and wider.status_code == 422


def test_pages_follow_each_other_and_deleted_links_keep_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "VERSIONS", 3)
    client = serving_run(tmp_path, 6, retention=maskreg.Retention(3, keep_links=2, lease_s=0))
    address, shown = "/runs/team/long:latest", list[list[str]]()
    while address and len(shown) < 20:
        text = client.get(address).text
        shown += rows(text, "Versions of long")
        following = re.search(r'href="([^"]+)" rel="next"', text)
        address = following[1] if following else ""
    assert [row[0] for row in shown] == ["6", "6", "5", "4", "3", "3", "2", "1"]
    assert [row[0] for row in shown if "deleted" in row] == ["4", "3", "3", "2", "1"]
    history = client.get("/p/team/long:latest?tab=history").text
    assert history.count("<td>moved</td>") == 7
    _, link, earlier, *_ = re.findall(r'href="(/p/team/long:latest@[^"]+)"', history)
    assert f'href="{earlier}"' in client.get(f"{link}?tab=lineage").text


def test_times_are_told_in_one_unit() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    shown = [ago(now - timedelta(seconds=seconds), now) for seconds in (-5, 0, 59, 60, 3599, 86_399, 864_000)]
    assert shown == ["0 s", "0 s", "59 s", "1 min", "59 min", "23 h", "10 d"]

"""Comparisons: figures that the command line has as well, and nothing of other projects."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.service.app import create_app
from maskreg.service.pages import compare as page
from maskreg.words import percent, times
from tests.service.pages.test_artifact import plain, section
from tests.service.serving import ADMIN, headers, service_in

PAIR = "/compare?ref=team/toy-opd:v1&ref=team/toy-rlvr:v1"


def test_two_masks_have_every_figure_of_the_command(client: TestClient, home: Path) -> None:
    text = client.get(PAIR).text
    with maskreg.Workspace(maskreg.Settings(home=home, config_path=home / "config.toml")) as space:
        pair = maskreg.compare("team/toy-opd:v1", "team/toy-rlvr:v1", workspace=space).pairs[0]
    assert pair.verdict.sentence.replace(" %", "\u00a0%") in text
    shown = plain(section(text, "overlap"))
    for null in pair.whole.nulls.values():
        assert null.expected is not None
        assert percent(null.expected / pair.whole.counts.most).replace(" ", "\u00a0") in section(text, "overlap")
        assert times(null.ratio) in shown
    assert times(pair.layers["0"].overlap.lift) in text
    assert times(pair.modules["mlp.up_proj"].overlap.lift) in text


def test_more_than_two_have_a_matrix_and_a_consensus(client: TestClient) -> None:
    text = client.get(f"{PAIR}&ref=team/toy-random").text
    assert re.findall(r'<a href="#pair-([A-C]{2})">', section(text, "matrix")) == ["AB", "AC", "BC"]
    assert "if independent" in section(text, "consensus")
    assert "was made from" in text


def test_fewer_ask_for_more(client: TestClient) -> None:
    for address in ("/compare", "/compare?ref=team/toy-opd:v1", "/compare?ref=&ref=team/toy-opd:v1&ref="):
        text = client.get(address).text
        assert "Compare masks" in text
    assert 'value="team/toy-opd:v1"' in text


@pytest.mark.parametrize(
    ("refs", "status"),
    [
        (["team/toy-opd:v1", "nonsense name"], 422),
        (["team/toy-opd:v1", "team/nothing"], 404),
        (["team/toy-opd:v1"] * 9, 422),
        (["team/toy-opd:v1", "<script>alert(1)</script>"], 422),
    ],
)
def test_what_cannot_be_compared_is_said(client: TestClient, refs: list[str], status: int) -> None:
    answer = client.get("/compare", params={"ref": refs})
    assert answer.status_code == status
    assert "<script>alert" not in answer.text


def test_masks_of_a_project_that_one_may_not_read_do_not_exist(client: TestClient) -> None:
    address = "/compare?ref=team/toy-opd:v1&ref=secret/plan:v1"
    assert client.get(address, headers=headers("reader-token")).status_code == 404
    assert client.get(address, follow_redirects=False).status_code == 303
    assert client.get(address, headers=headers(ADMIN)).status_code == 200


def test_a_comparison_is_made_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    first = client.get(PAIR).text
    monkeypatch.setattr(page, "compare_masks", None)
    assert client.get(PAIR).text == first


def test_what_is_too_large_to_wait_for_names_the_command_on_pages_and_in_the_api(home: Path) -> None:
    service = replace(service_in(home, frozenset({"team"})), most_compared=100)
    client = TestClient(create_app(service), "http://localhost", headers={"Accept": "text/html"})
    answer = client.get(PAIR)
    assert answer.status_code == 413
    assert "maskreg compare team/toy-opd:v1 team/toy-rlvr:v1" in answer.text
    names = client.get("/api/v1/artifacts", params={"text": "toy"}).json()["items"]
    digests = {item["ref"]: item["digest"] for item in names}
    pair = {"a": digests["team/toy-opd:v1"], "b": digests["team/toy-random"]}
    problem = client.get("/api/v1/compare", params=pair)
    assert (problem.status_code, "compares at most 100" in problem.json()["title"]) == (413, True)


def test_a_server_that_compares_enough_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_AT_ONCE", 0)
    app = create_app(service_in(home, frozenset({"team"})))
    app.state.comparisons = page.Comparisons()
    answer = TestClient(app, "http://localhost", headers={"Accept": "text/html"}).get(PAIR)
    assert answer.status_code == 503
    assert "load the page again" in answer.text

"""Comparisons: figures that the command line has as well, and nothing of other projects."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from threading import BoundedSemaphore

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.service.app import create_app
from maskreg.service.gateway.visibility import Remembered
from maskreg.service.pages import compare as page
from maskreg.words import percent, times
from tests.service.pages.test_artifact import plain, section
from tests.service.serving import ADMIN, headers, service_in

PAIR = "/compare?ref=team/toy-opd:v1&ref=team/toy-rlvr:v1"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was compared before."""
    monkeypatch.setattr(page, "_KEPT", Remembered(1))


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


def test_what_is_too_large_to_wait_for_names_the_command(home: Path, fresh: None) -> None:
    service = replace(service_in(home, frozenset({"team"})), most_compared=100)
    answer = TestClient(create_app(service), "http://localhost", headers={"Accept": "text/html"}).get(PAIR)
    assert answer.status_code == 413
    assert "maskreg compare team/toy-opd:v1 team/toy-rlvr:v1" in answer.text


def test_a_server_that_compares_enough_says_so(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, fresh: None
) -> None:
    monkeypatch.setattr(page, "_TURNS", BoundedSemaphore(1))
    page._TURNS.acquire()
    assert client.get(PAIR).status_code == 503

"""Searching, reading one artifact, and what others do not learn."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.catalog import Measurement
from maskreg.catalog.query import Position, Query
from maskreg.errors import UsageError
from maskreg.ref import Ref
from maskreg.service.api.replies import position_cursor, position_of
from maskreg.service.background import Indexer
from tests.service.labs import Lab
from tests.service.serving import ADMIN, headers


def refs(document: dict[str, object]) -> list[str]:
    return [item["ref"] for item in document["items"]]  # type: ignore[attr-defined]


def test_a_search_gives_what_the_command_line_lists(shared: Lab) -> None:
    page = shared.get("/artifacts", ADMIN, sort="name:asc")
    listed = maskreg.list(sort="name", descending=False, workspace=shared.workspace)
    assert refs(page) == [str(row.ref) for row in listed] == ["secret/hidden", "team/opd:v1", "team/rlvr"]
    assert {**page["items"][1], "at": None} == {**listed[1].to_json(), "at": None}
    assert (page["next"], page["left_out"]) == (None, [])


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"text": "team/*"}, ["team/opd:v1", "team/rlvr"]),
        ({"text": "secret/*"}, []),
        ({"project": "secret"}, []),
        ({"density": "0.3..0.5"}, ["team/rlvr"]),
        ({"tag": "v1", "family": "toy"}, ["team/opd:v1"]),
        ({"kind": "mask"}, []),
    ],
    ids=str,
)
def test_a_search_has_the_filters_of_the_command_line(shared: Lab, params: dict[str, str], expected: list[str]) -> None:
    assert refs(shared.get("/artifacts", sort="name:asc", **params)) == expected


def test_page_after_page_gives_everything_once(shared: Lab) -> None:
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None and len(seen) < 4:
        page = shared.get("/artifacts", ADMIN, sort="density", limit=1, cursor=cursor)
        seen += refs(page)
        cursor = page["next"]
    assert seen == refs(shared.get("/artifacts", ADMIN, sort="density"))
    assert len(seen) == 3


QUERY = Query(sort="density")
GOOD = position_cursor(QUERY, Position(0.5, Ref("team", "opd", "v1")))


def forged(*values: object) -> str:
    row = json.loads(base64.urlsafe_b64decode(GOOD + "=="))
    text = json.dumps([*values, row[-1]], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        GOOD + "A",
        GOOD[:-3],
        "a" * 3000,
        "%%%",
        "é",
        forged("dense", "team", "opd", "v1"),
        forged(True, "team", "opd", "v1"),
        forged(10**400, "team", "opd", "v1"),
        forged(0.5, "TEAM", "opd", "v1"),
        forged(0.5, "team", "opd"),
        forged(0.5, "team", "opd", "v1\n"),
        forged([], {}, None, 1),
    ],
)
def test_a_forged_cursor_is_refused(shared: Lab, cursor: str) -> None:
    with pytest.raises(UsageError, check=lambda error: "cursor" in error.hint):
        position_of(QUERY, cursor)
    answer = shared.client().get("/api/v1/artifacts", params={"sort": "density", "cursor": cursor})
    assert answer.status_code == 422


def test_a_cursor_is_of_one_search_only(shared: Lab) -> None:
    assert position_of(QUERY, GOOD) == Position(0.5, Ref("team", "opd", "v1"))
    created = position_cursor(Query(), Position(datetime(2025, 1, 1, tzinfo=UTC), Ref("team", "opd", "v1")))
    assert position_of(Query(), created).value == datetime(2025, 1, 1, tzinfo=UTC)
    for params in ({"sort": "size"}, {"sort": "density:asc"}, {"sort": "density", "family": "toy"}):
        answer = shared.client().get("/api/v1/artifacts", params={**params, "cursor": GOOD})
        assert (answer.status_code, answer.json()["code"]) == (422, UsageError.code)


def test_an_artifact_is_described(lab: Lab) -> None:
    maskreg.tag("team/opd:v1", "best", "secret/copy", workspace=lab.workspace)
    digest = lab.digests["opd"]
    shown = maskreg.show(digest, workspace=lab.workspace)
    document = lab.get(f"/artifacts/{digest}")
    assert (document["digest"], document["size"], document["verified"]) == (digest, shown.size, None)
    assert sorted(row["ref"] for row in document["refs"]) == ["team/opd:best", "team/opd:v1"]
    assert (document["present"], document["manifest"]) == (["delta", "mask"], shown.manifest.to_json())


def test_what_may_not_be_read_looks_like_what_is_not_there(shared: Lab) -> None:
    hidden, missing = shared.digests["hidden"], f"sha256:{'0' * 64}"
    answers = [shared.client().get(f"/api/v1/artifacts/{digest}") for digest in (hidden, missing)]
    assert [answer.status_code for answer in answers] == [404, 404]
    titles = {answer.json()["title"].replace(hidden[:19], "").replace(missing[:19], "") for answer in answers}
    assert len(titles) == 1
    assert shared.client(ADMIN).get(f"/api/v1/artifacts/{hidden}").status_code == 200
    assert shared.client("").get(f"/api/v1/artifacts/{hidden}").status_code == 401


def test_an_artifact_that_a_tag_pointed_to_can_still_be_read(lab: Lab) -> None:
    maskreg.tag(lab.digests["rlvr"], "team/opd:v1", workspace=lab.workspace)
    assert lab.get(f"/artifacts/{lab.digests['opd']}")["refs"] == []
    assert lab.client("stranger-token").get(f"/api/v1/artifacts/{lab.digests['opd']}").status_code == 404


def test_an_overlap_with_what_one_may_not_read_is_left_out(lab: Lab) -> None:
    opd = lab.digests["opd"]
    for other, shown in (("rlvr", True), ("hidden", False)):
        lab.service.registry.index.must_open().record(Measurement(opd, "rlvr_overlap", 1.5, lab.digests[other]))
        assert (lab.get(f"/artifacts/{opd}")["rlvr_overlap"] is not None) is shown
        assert lab.get(f"/artifacts/{opd}", ADMIN)["rlvr_overlap"]["lift"] == 1.5


def test_what_a_search_leaves_out_is_said(lab: Lab) -> None:
    digest = lab.digests["rlvr"]
    (lab.workspace.root / f"artifacts/sha256/{digest.hex}/manifest.json").write_text("{}")
    lab.workspace.local.index.must_open().drop_artifact(digest)
    with TestClient(lab.app, headers=headers("reader-token")) as first:
        path = "/api/v1/artifacts"
        while not (names := first.get(path).json()["left_out"]):
            time.sleep(0.01)
        assert [(name["ref"], name["digest"]) for name in names] == [("team/rlvr", digest)]
        assert TestClient(lab.app, headers=headers("stranger-token")).get(path).json()["left_out"] == []


def test_what_was_written_past_the_server_is_taken_in(lab: Lab) -> None:
    with maskreg.Workspace(lab.workspace.settings) as elsewhere:
        maskreg.tag("team/opd:v1", "later", workspace=elsewhere)
    # As though the writer had not reached the catalog.
    lab.workspace.local.refs.append(
        Ref("team", "straight", "v1"), after=None, digest=lab.digests["opd"], card=maskreg.Card(), by="carl"
    )
    assert "team/straight:v1" not in refs(lab.get("/artifacts"))
    Indexer(lab.service).turn()
    assert "team/straight:v1" in refs(lab.get("/artifacts"))

"""Measurements that clients record: whose artifacts they may judge, and what a malformed one is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.service.labs import Lab
from tests.service.serving import ADMIN

RECORD = "/api/v1/catalog/measurements"
LAST_DAY = "9999-12-31T00:00:00+00:00"


def test_who_only_reads_an_artifact_does_not_say_what_was_measured_on_it(lab: Lab) -> None:
    """Eve writes to another project. What she recorded would stand in every search for the artifact."""
    digest = str(lab.digests["opd"])
    lab.client(ADMIN).post("/api/v1/projects", json={"name": "team"})
    assert lab.client(ADMIN).patch("/api/v1/projects/team", json={"public": True}).status_code == 200
    row = {"digest": digest, "metric": "rlvr_overlap", "value": 99.0, "at": LAST_DAY}
    answer = lab.client("stranger-token").post(RECORD, json=row)
    assert answer.status_code == 403
    assert "that needs the role writer in a project that has it" in answer.json()["title"]
    assert lab.get(f"/artifacts/{digest}/measurements")["items"] == []
    assert lab.get(f"/artifacts/{digest}")["rlvr_overlap"] is None


def test_a_measurement_was_made_when_the_server_took_it_by_who_sent_it(lab: Lab) -> None:
    """One from the last day of all would be the latest for ever."""
    digest = str(lab.digests["opd"])
    row = {"digest": digest, "metric": "overlap", "value": 1.5, "at": LAST_DAY, "by": "ada"}
    assert lab.client("writer-token").post(RECORD, json=row).status_code == 200
    (item,) = lab.get(f"/artifacts/{digest}/measurements")["items"]
    assert item["by"] == "ada"
    assert abs(datetime.fromisoformat(item["at"]) - datetime.now(UTC)) < timedelta(hours=1)


def test_a_malformed_one_is_told_what_is_wrong(lab: Lab) -> None:
    digest = str(lab.digests["opd"])
    for row, title in (
        ({"metric": "overlap", "value": 1}, "a measurement: Object missing required field `digest`"),
        ({"digest": digest, "metric": 5, "value": 1}, "a measurement: metric: Expected `str`, got `int`"),
        ({"digest": "x", "metric": "a", "value": 1}, "a measurement: digest: not a sha256 digest: 'x'"),
    ):
        answer = lab.client("writer-token").post(RECORD, json=row)
        assert (answer.status_code, answer.json()["title"]) == (422, title)
    answer = lab.client().get("/api/v1/catalog/get", params={"arguments": "{}"})
    assert (answer.status_code, answer.json()["title"]) == (422, "malformed arguments: 'digest' is missing")

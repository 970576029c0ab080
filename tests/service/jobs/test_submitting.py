"""The API of jobs: what is taken, who can see it, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.errors import PartAbsentError
from maskreg.service.app import create_app
from tests.service.patching import Site
from tests.service.serving import ADMIN, headers, service_in

PATCHES = "/api/v1/patches"


@pytest.fixture
def client(site: Site) -> TestClient:
    return TestClient(create_app(site.service), headers=headers("writer-token"))


apply_body = partial(dict[str, Any], kind="apply", artifact="team/toy:v1", source="base", output="patched")
merge_body = partial(dict[str, Any], kind="merge", artifacts=["team/toy:v1"], name="team/sum")
extract_body = partial(dict[str, Any], kind="extract", source="base", target="tuned", name="team/x")


def test_a_job_is_pinned_to_the_digest_that_the_name_has_now(site: Site, client: TestClient) -> None:
    answer = client.post(PATCHES, json=apply_body())
    assert answer.status_code == 202, answer.text
    job = answer.json()
    digest = site.service.workspace.find("team/toy:v1").digest
    assert job["request"]["artifact"] == f"team/toy:v1@{digest}"
    assert (job["state"], job["project"], job["by"], job["output"]) == ("queued", "team", "ada", "team/patched")
    assert client.get(f"{PATCHES}/{job['id']}").json() == job
    assert client.get(PATCHES, params={"state": "queued"}).json() == {"items": [job], "next": None}
    assert client.get("/api/v1/sources").json() == {"items": ["base", "tuned"]}


def test_the_output_is_named_like_the_artifact_without_a_name(client: TestClient) -> None:
    job = client.post(PATCHES, json={"kind": "apply", "artifact": "team/toy:second"}).json()
    assert (job["output"], job["request"]["source"]) == ("team/toy", None)


@pytest.mark.parametrize("body", [extract_body(), merge_body(method="linear")], ids=lambda body: body["kind"])
def test_no_job_takes_a_name_that_was_removed_or_a_tag_that_never_moves(
    site: Site, client: TestClient, body: dict[str, Any]
) -> None:
    space, kind = site.service.workspace, body["kind"]
    maskreg.tag("team/toy:v1", f"team/retired:{kind}", workspace=space)
    maskreg.remove(f"team/retired:{kind}", workspace=space)
    maskreg.tag("team/toy:v1", f"team/fixed:{kind}", immutable=True, workspace=space)
    for name, status, code in ((f"team/retired:{kind}", 403, "DENIED"), (f"team/fixed:{kind}", 409, "TAG_IMMUTABLE")):
        refused = client.post(PATCHES, json={**body, "name": name})
        assert (refused.status_code, refused.json()["code"]) == (status, code)
    body = {**body, "name": f"team/retired:{kind}"}
    assert client.post(PATCHES, json=body, headers=headers(ADMIN)).status_code == 202


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "a path": (apply_body(source="/etc/passwd"), 422, "USAGE"),
    "a path upwards": (apply_body(source="../private/secret-model"), 422, "USAGE"),
    "a nul": (apply_body(source="base\0"), 422, "USAGE"),
    "what is not offered": (apply_body(source="secret-model"), 404, "NOT_FOUND"),
    "an output path": (apply_body(output="/tmp/x"), 422, "USAGE"),
    "a hidden output": (apply_body(output=".attempts"), 422, "USAGE"),
    "an artifact path": (apply_body(artifact="../../home"), 422, "NAME_INVALID"),
    "a project path": (apply_body(project="../etc"), 422, "NAME_INVALID"),
    "another project's artifact": (apply_body(artifact="elsewhere/secret"), 404, "NOT_FOUND"),
    "another project's quota": (apply_body(project="elsewhere"), 404, "NOT_FOUND"),
    "no artifact": (apply_body(artifact="team/nothing"), 404, "NOT_FOUND"),
    "an unknown field": (apply_body(device="cuda"), 422, "USAGE"),
    "a merge of another project's": (merge_body(artifacts=["team/toy:v1", "elsewhere/secret"]), 404, "NOT_FOUND"),
    "a mask of another project's": (merge_body(mask="elsewhere/secret"), 404, "NOT_FOUND"),
    "a mask as a setting": (merge_body(settings={"mask": "elsewhere/secret"}), 422, "USAGE"),
    "a name in another project": (merge_body(name="elsewhere/sum"), 404, "NOT_FOUND"),
    "an unknown method": (merge_body(method="nothing"), 422, "USAGE"),
    "a mask to reverse": (extract_body(mask_only=True, reversible=True), 422, "USAGE"),
    "a rule": (extract_body(rule="eval:1"), 422, "RULE_INVALID"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_client_may_not_name_is_refused(name: str, client: TestClient, site: Site) -> None:
    body, status, code = REFUSED[name]
    answer = client.post(PATCHES, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert str(site.folder) not in answer.text
    assert client.get(PATCHES, params={"state": "queued"}).json()["items"] == []


@pytest.mark.parametrize(
    "odd", ['"weights": [NaN]', '"weights": [1e999]', '"settings": {"a": NaN}', '"settings": {"\\ud800": 1}',
            '"settings": {"a": "\\ud800"}', '"description": "\\ud800"', '"description": "\\u0000"', '"name": 1'],
)  # fmt: skip
def test_what_a_database_or_an_answer_cannot_hold_is_refused(odd: str, client: TestClient) -> None:
    body = f'{{"kind": "merge", "artifacts": ["team/toy:v1"], "name": "team/sum", {odd}}}'
    answer = client.post(PATCHES, content=body.encode(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text


def test_a_digest_does_not_give_the_artifacts_of_other_projects(site: Site, client: TestClient) -> None:
    other = site.service.workspace.find("team/toy:second").digest
    answer = client.post(PATCHES, json=apply_body(artifact=f"team/toy:v1@{other}"))
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    own = site.service.workspace.find("team/toy:v1").digest
    assert client.post(PATCHES, json=apply_body(artifact=f"team/toy:v1@{own}")).status_code == 202


def test_a_mask_without_values_is_not_merged(site: Site, client: TestClient) -> None:
    maskreg.baseline("team/toy:v1", kind="random-global", seed=1, name="team/drawn", workspace=site.service.workspace)
    before = site.queue.list()
    answer = client.post(PATCHES, json=merge_body(method="linear", artifacts=["team/toy:v1", "team/drawn"]))
    assert (answer.status_code, answer.json()["code"]) == (404, PartAbsentError.code)
    assert site.queue.list() == before


def test_who_may_not_write_submits_and_cancels_nothing(client: TestClient) -> None:
    job = client.post(PATCHES, json=apply_body()).json()
    for token, refused, seen in (("", 401, 401), ("reader-token", 403, 200), ("stranger-token", 404, 404)):
        client.headers = headers(token)
        assert client.post(PATCHES, json=apply_body(output="other")).status_code == refused
        assert client.post(f"{PATCHES}/{job['id']}/cancel").status_code == refused
        assert client.get(f"{PATCHES}/{job['id']}").status_code == seen
        listed = client.get(PATCHES, params={"state": "queued"}).json().get("items", [])
        assert [entry["id"] for entry in listed] == ([job["id"]] if seen == 200 else [])


def test_an_output_that_is_there_is_not_made_again(site: Site, client: TestClient) -> None:
    (site.outputs / "team" / "taken").mkdir(parents=True)
    answer = client.post(PATCHES, json=apply_body(output="taken"))
    assert (answer.status_code, answer.json()["code"]) == (409, "OUTPUT_EXISTS")


def test_a_job_that_waits_is_canceled(site: Site, client: TestClient) -> None:
    job = client.post(PATCHES, json=apply_body()).json()
    canceled = client.post(f"{PATCHES}/{job['id']}/cancel").json()
    assert (canceled["state"], canceled["canceled_by"]) == ("canceled", "ada")
    events = [event for event in site.service.accounts.audit("team") if event.subject == job["id"]]
    assert [(event.action, event.by) for event in events] == [("cancel job", "ada"), ("submit job", "ada")]


def test_a_server_without_jobs_says_so(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        answer = TestClient(create_app(service), headers=headers("writer-token")).get(PATCHES)
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")

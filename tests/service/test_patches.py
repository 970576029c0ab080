"""The API of jobs: what is taken, who may see it, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg.service.app import create_app
from maskreg.service.jobs.queue import JobLimits, JobState
from tests.service.patching import Site, closing_site
from tests.service.serving import ADMIN, ROOT, headers, service_in

PATCHES = "/api/v1/patches"
LIMITS = JobLimits(waiting_per_project=3)


@pytest.fixture(scope="module")
def module_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that the tests of this file share."""
    with closing_site(tmp_path_factory.mktemp("site"), LIMITS) as site:
        yield site


@pytest.fixture
def site(module_site: Site) -> Site:
    """The server, with nothing left to do."""
    for job in module_site.queue.list(states=[JobState.QUEUED, JobState.RUNNING]):
        module_site.queue.cancel(job.id, "test")
    while (lease := module_site.queue.claim("test", LIMITS)) is not None:
        module_site.queue.finish(lease, JobState.CANCELED)
    return module_site


@pytest.fixture
def client(site: Site) -> TestClient:
    """A client of the server, who writes to team."""
    return TestClient(create_app(site.service), headers=headers("writer-token"))


def apply_body(**values: object) -> dict[str, Any]:
    """The body of a request that is right."""
    return {"kind": "apply", "artifact": "team/toy:v1", "source": "base", "output": "patched", **values}


def test_a_job_is_pinned_to_the_digest_that_the_name_has_now(site: Site, client: TestClient) -> None:
    answer = client.post(PATCHES, json=apply_body())
    assert answer.status_code == 202, answer.text
    job = answer.json()
    digest = site.service.workspace.find("team/toy:v1").digest
    assert job["request"]["artifact"] == f"team/toy:v1@{digest}"
    assert (job["state"], job["project"], job["by"], job["output"]) == ("queued", "team", "ada", "team/patched")
    assert client.get(f"{PATCHES}/{job['id']}").json() == job
    assert client.get(PATCHES, params={"state": "queued"}).json() == {"items": [job], "next": None}


def test_the_output_is_named_like_the_artifact_without_a_name(client: TestClient) -> None:
    job = client.post(PATCHES, json={"kind": "apply", "artifact": "team/toy:second"}).json()
    assert (job["output"], job["request"]["source"]) == ("team/toy", None)


def test_merges_and_extractions_are_taken(site: Site, client: TestClient) -> None:
    merge = {"kind": "merge", "artifacts": ["team/toy:v1", "team/toy:second"], "name": "team/sum", "method": "linear"}
    job = client.post(PATCHES, json=merge).json()
    assert [text.partition("@")[0] for text in job["request"]["artifacts"]] == ["team/toy:v1", "team/toy:second"]
    assert job["output"] == "team/sum:latest"
    extract = {"kind": "extract", "source": "base", "target": "tuned", "name": "team/again:v2", "family": "toy"}
    assert client.post(PATCHES, json=extract).json()["output"] == "team/again:v2"


def test_no_job_takes_a_name_that_was_removed(site: Site, client: TestClient) -> None:
    for tag in ("v1", "v2"):
        maskreg.tag("team/toy:v1", f"team/retired:{tag}", workspace=site.service.workspace)
        maskreg.remove(f"team/retired:{tag}", workspace=site.service.workspace)
    for name in ("team/retired:v1", "team/retired:v3"):
        for body in (
            {"kind": "extract", "source": "base", "target": "tuned"},
            {"kind": "merge", "artifacts": ["team/toy:v1", "team/toy:second"], "method": "linear"},
        ):
            refused = client.post(PATCHES, json={**body, "name": name})
            assert (refused.status_code, "removed" in refused.json()["title"]) == (403, True), refused.text
    accepted = client.post(PATCHES, json={**body, "name": "team/retired:v3"}, headers=headers(ADMIN))
    assert accepted.status_code == 202


def test_no_job_makes_an_artifact_for_a_tag_that_never_moves(site: Site, client: TestClient) -> None:
    maskreg.tag("team/toy:v1", "team/fixed:v1", immutable=True, workspace=site.service.workspace)
    for body in (
        {"kind": "extract", "source": "base", "target": "tuned"},
        {"kind": "merge", "artifacts": ["team/toy:v1", "team/toy:second"], "method": "linear"},
    ):
        refused = client.post(PATCHES, json={**body, "name": "team/fixed:v1"})
        assert (refused.status_code, refused.json()["code"]) == (409, "TAG_IMMUTABLE"), refused.text


def test_checkpoints_are_offered_by_name(client: TestClient) -> None:
    assert client.get("/api/v1/sources").json() == {"items": ["base", "tuned"]}


def test_the_names_of_checkpoints_are_for_those_who_can_submit_jobs(site: Site, client: TestClient) -> None:
    site.service.accounts.projects.change("team", ROOT, public=True)
    try:
        for token, status in (("", 401), ("reader-token", 403), ("writer-token", 200)):
            stranger = TestClient(create_app(site.service), headers=headers(token))
            assert stranger.get("/api/v1/sources").status_code == status
    finally:
        site.service.accounts.projects.change("team", ROOT, public=False)


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "a path": (apply_body(source="/etc/passwd"), 422, "USAGE"),
    "a path upwards": (apply_body(source="../private/secret-model"), 422, "USAGE"),
    "a file url": (apply_body(source="file:///etc/passwd"), 422, "USAGE"),
    "a hub id": (apply_body(source="org/model"), 422, "USAGE"),
    "a nul": (apply_body(source="base\0"), 422, "USAGE"),
    "what is not offered": (apply_body(source="secret-model"), 404, "NOT_FOUND"),
    "an output path": (apply_body(output="/tmp/x"), 422, "USAGE"),
    "a hidden output": (apply_body(output=".attempts"), 422, "USAGE"),
    "an artifact path": (apply_body(artifact="../../home"), 422, "NAME_INVALID"),
    "an artifact url": (apply_body(artifact="https://evil.example/x"), 422, "NAME_INVALID"),
    "a project path": (apply_body(project="../etc"), 422, "NAME_INVALID"),
    "another project's artifact": (apply_body(artifact="elsewhere/secret"), 404, "NOT_FOUND"),
    "another project's quota": (apply_body(project="elsewhere"), 404, "NOT_FOUND"),
    "no artifact": (apply_body(artifact="team/nothing"), 404, "NOT_FOUND"),
    "an unknown field": (apply_body(device="cuda"), 422, "USAGE"),
    "a merge of another project's": (
        {"kind": "merge", "artifacts": ["team/toy:v1", "elsewhere/secret"], "name": "team/sum"},
        404,
        "NOT_FOUND",
    ),
    "a mask of another project's": (
        {"kind": "merge", "artifacts": ["team/toy:v1"], "mask": "elsewhere/secret", "name": "team/sum"},
        404,
        "NOT_FOUND",
    ),
    "a mask as a setting": (
        {"kind": "merge", "artifacts": ["team/toy:v1"], "settings": {"mask": "elsewhere/secret"}, "name": "team/sum"},
        422,
        "USAGE",
    ),
    "a name in another project": ({"kind": "merge", "artifacts": ["team/toy:v1"], "name": "elsewhere/sum"}, 404, ""),
    "an unknown method": (
        {"kind": "merge", "artifacts": ["team/toy:v1"], "method": "nothing", "name": "team/sum"},
        422,
        "USAGE",
    ),
    "a rule": (
        {"kind": "extract", "source": "base", "target": "tuned", "name": "team/x", "rule": "eval:1"},
        422,
        "RULE_INVALID",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_client_may_not_name_is_refused(name: str, client: TestClient, site: Site) -> None:
    body, status, code = REFUSED[name]
    answer = client.post(PATCHES, json=body)
    assert answer.status_code == status, answer.text
    assert code in ("", answer.json()["code"])
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


def test_who_may_not_write_submits_and_cancels_nothing(client: TestClient) -> None:
    job = client.post(PATCHES, json=apply_body()).json()
    for token, submitted, canceled, seen in (
        ("", 401, 401, 401),
        ("reader-token", 403, 403, 200),
        ("stranger-token", 404, 404, 404),
    ):
        client.headers = headers(token)
        assert client.post(PATCHES, json=apply_body(output="other")).status_code == submitted
        assert client.post(f"{PATCHES}/{job['id']}/cancel").status_code == canceled
        assert client.get(f"{PATCHES}/{job['id']}").status_code == seen
        listed = client.get(PATCHES, params={"state": "queued"})
        assert [entry["id"] for entry in listed.json().get("items", [])] == ([job["id"]] if seen == 200 else [])


def test_jobs_are_listed_page_by_page(client: TestClient) -> None:
    submitted = [client.post(PATCHES, json=apply_body(output=f"out-{n}")).json()["id"] for n in range(3)]
    first = client.get(PATCHES, params={"limit": 2}).json()
    second = client.get(PATCHES, params={"limit": 2, "before": first["next"]}).json()
    assert [job["id"] for job in first["items"] + second["items"]][:3] == submitted[::-1]


def test_two_jobs_with_one_output_conflict(site: Site, client: TestClient) -> None:
    assert client.post(PATCHES, json=apply_body()).status_code == 202
    answer = client.post(PATCHES, json=apply_body())
    assert (answer.status_code, answer.json()["code"]) == (409, "CONFLICT")
    (site.outputs / "team" / "taken").mkdir(parents=True, exist_ok=True)
    answer = client.post(PATCHES, json=apply_body(output="taken"))
    assert (answer.status_code, answer.json()["code"]) == (409, "OUTPUT_EXISTS")


def test_a_job_that_waits_is_canceled(site: Site, client: TestClient) -> None:
    job = client.post(PATCHES, json=apply_body()).json()
    canceled = client.post(f"{PATCHES}/{job['id']}/cancel").json()
    assert (canceled["state"], canceled["canceled_by"]) == ("canceled", "ada")
    events = [event for event in site.service.accounts.audit("team") if event.subject == job["id"]]
    assert [(event.action, event.by) for event in events] == [("cancel job", "ada"), ("submit job", "ada")]


def test_a_server_without_jobs_says_so(tmp_path: Path) -> None:
    client = TestClient(create_app(service_in(tmp_path)), headers=headers("writer-token"))
    answer = client.get(PATCHES)
    assert answer.status_code == 404
    assert answer.json()["title"] == "this server runs no jobs"

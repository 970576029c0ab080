"""The pages of jobs: what each reader sees, and who stops one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from maskreg.service.app import create_app
from maskreg.service.auth.roles import Role
from maskreg.service.auth.tokens import Scope
from maskreg.service.jobs.queue import NewJob
from maskreg.workspace.verbs.jobs import JobProgress, JobState
from tests.service.patching import Site
from tests.service.patching import module_site as site
from tests.service.serving import ADMIN, ROOT, headers

__all__ = ["site"]


def reader(site: Site, token: str) -> TestClient:
    return TestClient(create_app(site.service), headers={"Accept": "text/html", **headers(token)})


def submitted(site: Site, output: str) -> str:
    body = {"kind": "apply", "artifact": "team/toy:v1", "source": "base", "output": output}
    return str(reader(site, "writer-token").post("/api/v1/patches", json=body).json()["id"])


def test_members_see_the_jobs_of_a_project_and_owners_and_admins_cancel_them(site: Site) -> None:
    first, second = submitted(site, "first"), submitted(site, "second")
    other = site.service.accounts.tokens.create("eli", Scope("team", Role.WRITER), ROOT).token
    for token, can_cancel in (("reader-token", False), (other, False), ("writer-token", True), (ADMIN, True)):
        client = reader(site, token)
        assert f'href="/jobs/{first}"' in client.get("/jobs").text
        assert (f'action="/jobs/{first}/cancel"' in client.get(f"/jobs/{first}").text) == can_cancel
    for token, status in (("stranger-token", 404), ("reader-token", 403), (other, 403)):
        assert reader(site, token).post(f"/jobs/{first}/cancel").status_code == status
    assert reader(site, "stranger-token").get(f"/jobs/{first}").status_code == 404
    assert first not in reader(site, "stranger-token").get("/jobs").text
    for token, job in (("writer-token", first), (ADMIN, second)):
        assert reader(site, token).post(f"/jobs/{job}/cancel").status_code == 200
        assert site.queue.get(job).state is JobState.CANCELED
    canceled = reader(site, ADMIN).get("/jobs?state=canceled&project=team").text
    assert first in canceled and second in canceled
    assert first not in reader(site, ADMIN).get("/jobs?state=done").text


@pytest.mark.parametrize("request_", [{"artifact": "REF"}, {"artifacts": ["team/toy:v1", "REF"], "mask": "REF"}])
def test_a_job_tells_no_names_of_projects_that_its_reader_cannot_read(site: Site, request_: dict[str, Any]) -> None:
    ref = f"elsewhere/secret:latest@{(digest := site.service.workspace.find('elsewhere/secret').digest)}"
    request = json.loads(json.dumps(request_).replace("REF", ref))
    job = site.queue.submit(NewJob("apply", "team", "root", "team/other", request))
    claim = site.queue.claim("worker")
    assert claim is not None and claim.job.id == job.id
    site.queue.report(claim, JobProgress(), ["fetched elsewhere/secret"])
    error = {"code": "DATA", "title": "elsewhere/secret: has no values; and neither has elsewhere/secret:latest"}
    site.queue.finish(claim, JobState.FAILED, error=error)
    for address in (f"/jobs/{job.id}", f"/api/v1/patches/{job.id}", "/api/v1/patches"):
        seen = reader(site, "reader-token").get(address)
        assert seen.status_code == 200 and "elsewhere" not in seen.text and digest.hex[:12] in seen.text
        assert "elsewhere/secret" in reader(site, ADMIN).get(address).text

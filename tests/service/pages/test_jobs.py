"""The page of jobs: what is going on, to be seen and to be stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from maskreg.service.app import create_app
from maskreg.service.jobs.queue import JobLimits, JobState, Meter
from tests.browser import Opened
from tests.service.pages.test_signing_in import OWN
from tests.service.patching import Site, site_in
from tests.service.serving import headers, listening

WRITER = "writer-token"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with a queue."""
    site = site_in(tmp_path_factory.mktemp("site"))
    yield site
    site.queue.close()


@pytest.fixture
def client(site: Site) -> TestClient:
    """A client of that server that reads pages."""
    return TestClient(create_app(site.service), "http://localhost", headers={"Accept": "text/html"})


def submitted(client: TestClient, output: str) -> str:
    body = {"kind": "apply", "artifact": "team/toy:v1", "source": "base", "output": output}
    answer = client.post("/api/v1/patches", json=body, headers=headers(WRITER))
    return str(answer.json()["id"])


def test_jobs_are_for_those_who_may_read_their_project(client: TestClient) -> None:
    id = submitted(client, "mine")
    assert "team/mine" in client.get("/jobs", headers=headers("reader-token")).text
    assert "team/mine" not in client.get("/jobs").text
    assert "team/mine" not in client.get("/jobs", headers=headers("stranger-token")).text
    assert client.get(f"/jobs/{id}", headers=headers("stranger-token")).status_code == 404
    assert client.get(f"/jobs/{id}", headers=headers("reader-token")).status_code == 200


def test_writers_alone_stop_a_job(client: TestClient) -> None:
    id = submitted(client, "stopped")
    assert "Cancel</button>" not in client.get(f"/jobs/{id}", headers=headers("reader-token")).text
    assert client.post(f"/jobs/{id}/cancel", headers={**headers("reader-token"), **OWN}).status_code == 403
    client.post("/sign-in", data={"token": WRITER}, headers=OWN)
    assert client.post(f"/jobs/{id}/cancel", headers=OWN).status_code == 403
    page = client.get(f"/jobs/{id}").text
    token = page.partition(f'action="/jobs/{id}/cancel"')[2].partition('value="')[2].partition('"')[0]
    assert "canceled" in client.post(f"/jobs/{id}/cancel", data={"csrf": token}, headers=OWN).text


def test_why_a_job_failed_is_said(client: TestClient, site: Site) -> None:
    id = submitted(client, "failing")
    queue = site.queue
    while (lease := queue.claim("test", JobLimits())) is not None:
        failed = lease.job.id == id
        queue.finish(
            lease,
            JobState.FAILED if failed else JobState.CANCELED,
            error={"title": "the <b>disk</b> is full", "hint": "df -h"} if failed else None,
        )
    page = client.get(f"/jobs/{id}", headers=headers(WRITER)).text
    assert "the &lt;b&gt;disk&lt;/b&gt; is full" in page
    assert "<code>df -h</code>" in page


def test_a_server_without_jobs_says_so(home: Path) -> None:
    from tests.service.serving import service_in

    client = TestClient(create_app(service_in(home)), headers={"Accept": "text/html"})
    assert "This server runs no jobs." in client.get("/jobs").text
    assert client.get("/jobs/1", headers=headers(WRITER)).status_code == 404


def test_progress_is_shown_as_it_is_made(browser: Any, site: Site, client: TestClient) -> None:
    from playwright.sync_api import expect

    id = submitted(client, "followed")
    with listening(create_app(site.service)) as url, Opened(browser, f"{url}/sign-in?next=/jobs/{id}", "light") as view:
        page = view.page
        page.get_by_label("Token").fill(WRITER)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".state")).to_have_text("queued")
        queue = site.queue
        while (lease := queue.claim("test", JobLimits())) is not None and lease.job.id != id:
            queue.finish(lease, JobState.CANCELED)
        assert lease is not None
        queue.beat(lease, Meter("patch", 30, 100))
        expect(page.get_by_role("progressbar", name="Progress")).to_have_attribute("value", "30")
        queue.finish(lease, JobState.DONE, result={"path": "team/followed", "tensors": 3})
        expect(page.get_by_role("heading", name="Result")).to_be_visible()
        expect(page.locator(".state")).to_have_text("done")
        assert view.said == []

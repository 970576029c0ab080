"""Commands that have a server do the work: ``--on SERVER``, and ``maskreg jobs``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from maskreg.service.app import create_app
from maskreg.service.jobs.workers import Workers
from maskreg.workspace.verbs import jobs
from maskreg.workspace.verbs.jobs import JobProgress, JobState
from tests.cli.conftest import Run
from tests.service.patching import Site, module_site
from tests.service.serving import listening

__all__ = ["module_site"]


@pytest.fixture(scope="module")
def server(module_site: Site) -> Iterator[str]:
    with listening(create_app(module_site.service)) as url:
        yield url


@pytest.fixture(scope="module")
def workers(module_site: Site) -> Iterator[Workers]:
    with Workers(module_site.config, 1) as workers:
        yield workers


@pytest.fixture
def site(module_site: Site, server: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The server, which ada knows as ``lab``."""
    monkeypatch.setenv("MASKREG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MASKREG_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("MASKREG_TOKEN", "writer-token")
    run("remote", "add", "lab", server)
    monkeypatch.setattr(jobs, "POLL_S", 0.05)
    return module_site


def test_a_job_is_left_followed_and_canceled(site: Site, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "wait", interrupt)
        done = run("apply", "team/toy:v1", "--on", "lab", "-o", "left", status=130)
    (job,) = jobs.list("lab")
    assert f": maskreg jobs show {job.id} --wait --on lab" in done.err
    assert f": maskreg jobs cancel {job.id} --on lab" in done.err
    assert run("jobs", "list", "--on", "lab", "-q", "--state", "queued", "--project", "team").out == f"{job.id}\n"
    run("jobs", "cancel", job.id, "--on", "lab")
    assert run("jobs", "show", job.id, "--on", "lab", "--json").json["canceled_by"] == "ada"
    assert run("jobs", "show", job.id, "--on", "lab", "-q").out == f"{job.id}\n"
    assert not (site.outputs / "team").exists()


def test_a_job_that_is_not_waited_for_is_an_id(site: Site, run: Run) -> None:
    id = run("apply", "team/toy:v1", "--on", "lab", "--no-wait", "-o", "later").out.strip()
    lease = site.queue.claim("w")
    assert lease is not None
    assert lease.job.id == id
    site.queue.report(lease, JobProgress("apply", 1 << 20, 4 << 20), ())
    assert "apply: 1.0 MiB of 4.0 MiB, 25.0 %" in run("jobs", "show", id, "--on", "lab").out
    site.queue.finish(lease, JobState.FAILED, error={"code": "NO_SPACE", "hint": "h", "facts": {"project": "team"}})
    assert "h: maskreg list --project team" in run("jobs", "show", id, "--on", "lab").out


@pytest.mark.usefixtures("workers")
def test_applying_on_a_server_reads_like_applying_here(site: Site, run: Run) -> None:
    done = run("apply", "team/toy:v1", "--on", "lab", "--source", "base", "-o", "text")
    assert done.out == "team/text\n"
    assert site.weights(site.outputs / "team" / "text") == site.target
    job = run("apply", "team/toy:v1", "--on", "lab", "-o", "json", "--json").json
    assert job["state"] == "done"
    assert job["result"]["root"] == site.service.workspace.find("team/toy:v1").manifest.target.root
    assert run("jobs", "show", job["id"], "--on", "lab", "--wait").out == "team/json\n"
    assert job["result"]["root"] in run("jobs", "show", job["id"], "--on", "lab").out
    assert run("jobs", "list", "--on", "lab", "--json").json[0]["id"] == job["id"]

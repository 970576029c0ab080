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
    run("remote", "add", "folder", tmp_path / "store")
    monkeypatch.setattr(jobs, "POLL_S", 0.05)
    return module_site


def test_the_next_step_without_a_server_is_to_add_one(site: Site, server: str, run: Run, tmp_path: Path) -> None:
    assert run("jobs", "sources", "--on", "lab").out == "base\ntuned\n"
    assert "next: write lab" in run("jobs", "cancel", "1", "--on", server, status=78).err
    assert (
        "next: maskreg remote add NAME http://127.0.0.1:9\n"
        in run(*("jobs", "cancel", "1", "--on", "http://127.0.0.1:9"), status=78).err
    )
    for name in ("lab", "folder"):
        run("remote", "remove", name)
    assert "next: maskreg remote add NAME https://" in run("jobs", "list", status=78).err


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
    listed = run("jobs", "list", "--on", "lab").out.splitlines()[1]
    assert listed.split()[:5] == [job.id, "queued", "apply", "team/left", "ada"]
    assert "canceled" in run("jobs", "cancel", job.id, "--on", "lab").err
    assert run("jobs", "show", job.id, "--on", "lab", "--json").json["canceled_by"] == "ada"
    run("jobs", "show", job.id, "--wait", "--on", "lab", status=75)
    assert not (site.outputs / "team").exists()


def test_a_job_that_is_not_waited_for_is_an_id(site: Site, run: Run) -> None:
    id = run("apply", "team/toy:v1", "--on", "lab", "--no-wait", "-o", "later").out.strip()
    lease = site.queue.claim("w")
    assert lease is not None
    assert lease.job.id == id
    site.queue.report(lease, JobProgress("apply", 1 << 20, 4 << 20), ())
    assert "apply: 1.0 MiB of 4.0 MiB, 25.0 %" in run("jobs", "show", id, "--on", "lab").out
    run("jobs", "cancel", id, "--on", "lab")
    site.queue.finish(lease, JobState.CANCELED)


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["apply", "--on", "lab"], 2, "with --on, name the artifact"),
        (["apply", "team/toy:v1", "--on", "lab", "--device", "cuda"], 2, "--device is about this machine"),
        (["apply", "team/toy:v1", "--on", "lab", "--source", "./base"], 2, "'./base' is not the name of a checkpoint"),
        (["apply", "team/toy:v1", "--on", "lab", "--source", "nothing"], 66, "offers no checkpoint called nothing"),
        (
            ["merge", "team/toy:v1", "--on", "lab", "--method", "linear", "--name", "team/x", "-o", "x"],
            2,
            "--out is about this machine",
        ),
        (["extract", "base", "tuned", "--on", "lab", "--name", "team/x", "--meta", "a=b"], 2, "--meta is about this"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
@pytest.mark.usefixtures("site")
def test_what_cannot_be_done_there_is_refused(args: list[str], status: int, message: str, run: Run) -> None:
    done = run(*args, status=status)
    assert message in done.err


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

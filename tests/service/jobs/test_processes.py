"""Workers as processes: killed, started again, and told to leave."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import maskreg
from maskreg.service.auth.accounts import Accounts
from maskreg.service.jobs.base import Job, JobLimits, JobState
from maskreg.service.jobs.patching import ATTEMPTS
from maskreg.service.jobs.processes import Workers, start_workers
from maskreg.service.jobs.requests import ApplyRequest
from maskreg.service.jobs.sql import SqlJobQueue
from maskreg.service.jobs.submitting import Submitter, new_job
from tests.checkpoints import make_checkpoint
from tests.servers import Postgres
from tests.service.jobs.conftest import with_table
from tests.service.patching import Site, site_in

ADA = Submitter("ada", lambda project: None, lambda project: None, lambda ref: None)
ELEMENTS = 32 << 20

# What a queue answers to these is tested on both databases without processes.
ONE_DATABASE = pytest.mark.parametrize("site", ["sqlite"], indirect=True)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A server with an artifact, ``team/large``, that takes a second or two to apply."""
    site = site_in(tmp_path_factory.mktemp("large"))
    rng = np.random.default_rng(0)
    source = rng.integers(0x3C00, 0x3F00, ELEMENTS, dtype=np.uint16)
    target = source + (rng.random(ELEMENTS, dtype=np.float32) < 0.5).astype(np.uint16)
    shape = (ELEMENTS >> 12, 1 << 12)
    before, after = (
        make_checkpoint(site.folder / where, {"model.layers.0.mlp.up_proj.weight": ("BF16", values.reshape(shape))})
        for where, values in (("models/large", source), ("large-target", target))
    )
    maskreg.extract(before, after, "team/large", workspace=site.service.workspace)
    return site


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, large: Site, tmp_path: Path) -> Iterator[Site]:
    """The same with a queue of its own, on either database."""
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        url = with_table(server.new_database())
    else:
        url = with_table(f"sqlite:///{tmp_path / 'service.db'}")
    queue = SqlJobQueue.open(url)
    (tmp_path / "outputs").mkdir()
    patching = replace(large.patching, queue=queue, outputs=tmp_path / "outputs")
    yield replace(large, url=url, service=replace(large.service, patching=patching))
    queue.close()


def submitted(site: Site, output: str = "patched", artifact: str = "team/large", source: str = "large") -> Job:
    request = ApplyRequest(kind="apply", artifact=artifact, source=source, output=output)
    return site.patching.queue.submit(new_job(site.service.registry, site.patching, request, ADA), JobLimits())


def wait_for(site: Site, job: Job, condition: Callable[[Job], bool]) -> Job:
    """The job as soon as a condition holds."""
    deadline = time.monotonic() + 60
    while not condition(now := site.patching.queue.get(job.id)):
        assert time.monotonic() < deadline, now
        time.sleep(0.02)
    return now


def is_writing(site: Site, job: Job) -> bool:
    """Whether an attempt at a job has written some of its checkpoint."""
    drafts = site.patching.attempt(job.id).rglob("*.safetensors")
    return any(path.stat().st_blocks > 0 for path in drafts)


def test_a_job_survives_its_worker_and_ends_once(site: Site) -> None:
    job = submitted(site)
    with start_workers(site.bench, 1) as workers:
        (first,) = wait_for_pids(workers)
        wait_for(site, job, lambda now: is_writing(site, now))
        os.kill(first, signal.SIGKILL)
        ended = wait_for(site, job, lambda now: now.state.is_final)
        assert first not in workers.pids
    assert (ended.state, ended.attempt) == (JobState.DONE, 2), ended.error
    assert ended.result is not None
    with closing(Accounts.open(site.url)) as accounts:
        (event,) = accounts.audit("team", limit=1)
    assert (event.action, event.by, event.subject) == ("job done", "ada", job.id)
    assert ended.result["root"] == site.service.workspace.find("team/large").manifest.target.root
    target = site.weights(site.folder / "large-target")
    assert site.weights(site.outputs / "team" / "patched") == target
    assert list((site.outputs / ATTEMPTS).iterdir()) == []


def wait_for_pids(workers: Workers) -> list[int]:
    """The processes of workers that have just been started."""
    while not (pids := workers.pids):
        time.sleep(0.01)
    return pids


@ONE_DATABASE
def test_a_job_is_canceled_while_it_writes(site: Site) -> None:
    job = submitted(site)
    with start_workers(site.bench, 1):
        wait_for(site, job, lambda now: is_writing(site, now))
        site.patching.queue.cancel(job.id, "ada")
        ended = wait_for(site, job, lambda now: now.state.is_final)
    assert (ended.state, ended.attempt) == (JobState.CANCELED, 1)
    assert [path for path in site.outputs.rglob("*") if path.is_file()] == []


@ONE_DATABASE
def test_workers_that_are_closed_give_their_jobs_back(site: Site) -> None:
    job = submitted(site)
    with start_workers(site.bench, 1):
        wait_for(site, job, lambda now: is_writing(site, now))
    back = site.patching.queue.get(job.id)
    assert (back.state, back.attempt) == (JobState.QUEUED, 0)


def test_two_workers_share_the_jobs(site: Site) -> None:
    jobs = [submitted(site, f"out-{number}", "team/toy:v1", "base") for number in range(8)]
    with start_workers(site.bench, 2):
        ended = [wait_for(site, job, lambda now: now.state.is_final) for job in jobs]
    assert [(job.state, job.attempt) for job in ended] == [(JobState.DONE, 1)] * 8

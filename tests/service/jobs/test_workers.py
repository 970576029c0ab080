"""Workers and the processes of their attempts: killed, canceled, too slow, and told to leave."""

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
from maskreg.errors import ConflictError
from maskreg.ref import Ref
from maskreg.service.auth.accounts import Accounts
from maskreg.service.jobs import workers
from maskreg.service.jobs.config import JobConfig
from maskreg.service.jobs.queue import Claim, JobQueue, NewJob
from maskreg.service.jobs.workers import Workers
from maskreg.workspace.verbs.jobs import Job, JobState
from tests.checkpoints import make_checkpoint
from tests.service.patching import Site, pass_time, site_in, with_table
from tests.service.serving import until

ELEMENTS = 16 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Site:
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


@pytest.fixture
def site(large: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("BEAT_S", "POLL_S", "RETRY_S"):
        monkeypatch.setattr(workers, name, 0.05)
    url = with_table(f"sqlite:///{tmp_path / 'service.db'}")
    (tmp_path / "outputs").mkdir()
    config = replace(large.config, url=url, outputs=tmp_path / "outputs")
    with closing(Accounts.open(url)) as accounts:
        yield replace(large, service=replace(large.service, accounts=accounts, jobs=config))


def submitted(site: Site) -> Job:
    ref = Ref.parse("team/large")
    pinned = str(ref.pinned(site.service.registry.resolve(ref).digest))
    values = {"artifact": pinned, "source": "large", "output": "patched", "revert": False}
    return site.queue.submit(NewJob("apply", "team", "ada", "team/patched", values))


def wait_for(site: Site, job: Job, condition: Callable[[Job], bool] = lambda job: job.state.is_final) -> Job:
    until(lambda: condition(site.queue.get(job.id)))
    return site.queue.get(job.id)


def is_writing(site: Site, job: Job) -> bool:
    drafts = (site.config.attempts / job.id).rglob("*.safetensors")
    return any(path.stat().st_blocks > 0 for path in drafts)


def hold(running: Workers) -> None:
    """Stop the processes of attempts where they are: else one can end before it is told to."""
    for attempt in running.pids:
        os.kill(attempt, signal.SIGSTOP)


def leftovers(site: Site) -> list[Path]:
    return [path for path in site.outputs.rglob("*") if path.is_file()]


def test_a_job_survives_its_process_and_ends_once(site: Site) -> None:
    job = submitted(site)
    with Workers(site.config, 1) as running:
        wait_for(site, job, lambda _: is_writing(site, job))
        (first,) = running.pids
        os.kill(first, signal.SIGKILL)
        ended = wait_for(site, job)
    assert (ended.state, ended.attempt) == (JobState.DONE, 2), ended.error
    assert ended.result is not None
    assert ended.result["root"] == site.service.workspace.find("team/large").manifest.target.root
    assert site.weights(site.outputs / "team" / "patched") == site.weights(site.folder / "large-target")
    assert list(site.config.attempts.iterdir()) == []


def test_a_job_is_canceled_while_it_writes(site: Site) -> None:
    job = submitted(site)
    with Workers(site.config, 1) as running:
        wait_for(site, job, lambda _: is_writing(site, job))
        hold(running)
        site.queue.cancel(job.id, "ada")
        ended = wait_for(site, job)
    assert (ended.state, ended.attempt, ended.result) == (JobState.CANCELED, 1, None)
    assert leftovers(site) == []


def test_workers_that_are_closed_give_their_jobs_back(site: Site) -> None:
    job = submitted(site)
    with Workers(site.config, 1) as running:
        wait_for(site, job, lambda _: is_writing(site, job))
        hold(running)
    back = site.queue.get(job.id)
    assert (back.state, back.attempt) == (JobState.QUEUED, 0)


def hang(config: JobConfig, claim: Claim) -> None:
    folder = config.attempts / claim.job.id / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "draft").touch()
    time.sleep(600)


def hang_after_commit(config: JobConfig, claim: Claim) -> None:
    with closing(Accounts.open(config.url)) as accounts:
        assert JobQueue(accounts.database).commit(claim)
    (config.outputs / "committed").touch()
    time.sleep(600)


def test_a_job_that_takes_too_long_fails_and_leaves_nothing(site: Site) -> None:
    job = submitted(site)
    with Workers(replace(site.config, seconds=0.1), 1, act=hang):
        ended = wait_for(site, job)
    assert (ended.state, (ended.error or {})["code"]) == (JobState.FAILED, "TOO_LONG")
    assert leftovers(site) == []


def test_a_worker_whose_job_was_given_to_another_leaves_it_alone(site: Site) -> None:
    job = submitted(site)
    with Workers(site.config, 1, act=hang) as running:
        wait_for(site, job, lambda _: bool(leftovers(site)))
        # Until the claim wins the race against the heartbeat.
        claim = None
        while claim is None:
            pass_time(site.queue, 60)
            claim = site.queue.claim("another")
        until(lambda: not running.pids)
    now = site.queue.get(job.id)
    assert (now.state, now.attempt) == (JobState.RUNNING, 2)
    assert site.queue.finish(claim, JobState.DONE)


def test_a_job_that_is_about_to_be_visible_is_not_canceled(site: Site) -> None:
    job = submitted(site)
    with Workers(site.config, 1, act=hang_after_commit):
        wait_for(site, job, lambda _: (site.outputs / "committed").exists())
        with pytest.raises(ConflictError):
            site.queue.cancel(job.id, "ada")
        time.sleep(10 * workers.BEAT_S)
        assert site.queue.get(job.id).state is JobState.RUNNING


def test_what_killed_attempts_left_goes_when_their_job_has_ended(site: Site) -> None:
    job = submitted(site)
    assert site.queue.claim("dead")
    for id in (job.id, "of-no-job"):
        (site.config.attempts / id / "1").mkdir(parents=True)
    with Workers(site.config, 1):
        until(lambda: len(list(site.config.attempts.iterdir())) == 1)
    assert [path.name for path in site.config.attempts.iterdir()] == [job.id]

"""The contract of a queue, on SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from maskreg.errors import ConflictError, NotFoundError, TryAgainError
from maskreg.service.jobs.queue import ATTEMPTS, KEEP_S, LEASE_S, MOST_WAITING, Claim, JobQueue, NewJob
from maskreg.workspace.verbs.jobs import JobProgress, JobState
from tests.service.patching import pass_time


def new(output: str = "model", project: str = "team") -> NewJob:
    return NewJob("apply", project, "ada", output, {"artifact": "team/opd", "source": None})


def claimed(queue: JobQueue, worker: str = "w") -> Claim:
    claim = queue.claim(worker)
    assert claim is not None
    return claim


def test_a_job_runs_and_is_done(queue: JobQueue) -> None:
    job = queue.submit(new())
    assert (job.state, job.attempt, job.started, job.request) == (JobState.QUEUED, 0, None, new().request)
    claim = claimed(queue)
    assert (claim.job.id, claim.job.state, claim.job.attempt) == (job.id, JobState.RUNNING, 1)
    assert queue.claim("other") is None
    queue.report(claim, JobProgress("apply", 5, 10), ["begun", "<b>going on"])
    kept = queue.beat(claim)
    assert kept is not None and (kept.progress, kept.log) == (JobProgress("apply", 5, 10), ("begun", "<b>going on"))
    assert queue.finish(claim, JobState.DONE, result={"output": "model"})
    done = queue.get(job.id)
    assert (done.state, done.result, done.error) == (JobState.DONE, {"output": "model"}, None)
    assert done.started is not None and done.finished is not None
    assert done.created <= done.started <= done.finished
    assert queue.claim("w") is None


@pytest.mark.parametrize("seconds", [LEASE_S + 1, -3e7])
def test_a_job_whose_worker_is_silent_is_taken_again_and_ends_once(queue: JobQueue, seconds: float) -> None:
    queue.submit(new())
    dead = claimed(queue, "w")
    for _ in range(4):
        pass_time(queue, LEASE_S / 2)
        assert queue.beat(dead)
        assert queue.claim("w") is None
    pass_time(queue, seconds)
    alive = claimed(queue, "w")
    assert (alive.job.id, alive.job.attempt) == (dead.job.id, 2)
    assert queue.beat(dead) is None
    assert not queue.finish(dead, JobState.DONE, result={"by": "dead"})
    queue.release(dead, counted=True)
    assert queue.finish(alive, JobState.DONE, result={"by": "alive"})
    assert not queue.finish(alive, JobState.FAILED)
    assert queue.get(alive.job.id).result == {"by": "alive"}


def test_a_worker_that_leaves_gives_its_job_back_untouched(queue: JobQueue) -> None:
    queue.submit(new())
    queue.release(claimed(queue), counted=False)
    queue.release(claimed(queue), counted=True)
    assert claimed(queue).job.attempt == 2


def test_a_job_is_forgotten_some_time_after_its_end(queue: JobQueue) -> None:
    job = queue.submit(new())
    queue.finish(claimed(queue), JobState.DONE)
    for seconds, is_there in ((KEEP_S - 60, True), (120, False)):
        pass_time(queue, seconds)
        queue.submit(new(str(seconds)))
        assert (job.id in {other.id for other in queue.list()}) is is_there


def test_the_project_with_the_fewest_running_jobs_goes_first_and_then_the_oldest_job(queue: JobQueue) -> None:
    for project, output in (("team", "a"), ("team", "b"), ("team", "c"), ("lab", "d"), ("lab", "e")):
        queue.submit(new(output, project))
    claims = [claimed(queue) for _ in range(3)]
    assert [claim.job.output for claim in claims] == ["a", "d", "b"]
    queue.finish(claims[0], JobState.DONE)
    queue.finish(claims[2], JobState.FAILED, error={"code": "X"})
    assert [claimed(queue).job.output for _ in range(2)] == ["c", "e"]
    assert queue.claim("w") is None


def test_a_job_is_canceled_until_it_commits_and_is_stopped_no_longer(queue: JobQueue) -> None:
    for output in "ab":
        queue.submit(new(output))
    first, second = claimed(queue), claimed(queue)
    assert queue.commit(first)
    with pytest.raises(ConflictError):
        queue.cancel(first.job.id, "bob")
    assert not queue.stop(first, JobState.FAILED)
    queue.cancel(second.job.id, "bob")
    assert not queue.commit(second)
    assert queue.stop(second, JobState.CANCELED)
    assert queue.finish(first, JobState.DONE)


def test_a_project_has_so_many_jobs_that_wait_and_one_for_each_output(queue: JobQueue) -> None:
    first, *_ = [queue.submit(new(str(number))) for number in range(MOST_WAITING)]
    with pytest.raises(TryAgainError):
        queue.submit(new("more"))
    queue.submit(new("more", "lab"))
    with pytest.raises(ConflictError):
        queue.submit(new("0"))
    queue.cancel(first.id, "ada")
    assert queue.submit(new("0")).id != first.id


def test_a_job_that_kills_its_workers_fails(queue: JobQueue) -> None:
    job = queue.submit(new())
    for _ in range(ATTEMPTS):
        claimed(queue)
        pass_time(queue, LEASE_S + 1)
    assert queue.claim("w") is None
    failed = queue.get(job.id)
    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert failed.error["code"] == "WORKER_FAILED"


def test_a_job_is_canceled_once_and_never_taken_again(queue: JobQueue) -> None:
    waiting, silent, running, done = (queue.submit(new(name, name)) for name in "abcd")
    canceled = queue.cancel(waiting.id, "bob")
    assert (canceled.state, canceled.canceled_by) == (JobState.CANCELED, "bob")
    assert canceled.finished is not None
    assert queue.cancel(waiting.id, "eve").canceled_by == "bob"
    claims = [claimed(queue) for _ in range(3)]
    assert [claim.job.id for claim in claims] == [silent.id, running.id, done.id]
    queue.finish(claims[2], JobState.DONE)
    with pytest.raises(ConflictError):
        queue.cancel(done.id, "bob")
    for job in (silent, running):
        assert queue.cancel(job.id, "bob").state is JobState.RUNNING
    kept = queue.beat(claims[1])
    assert kept is not None and kept.canceled_by == "bob"
    assert queue.finish(claims[1], JobState.CANCELED)
    # Its worker died before it could end the job.
    pass_time(queue, LEASE_S + 1)
    assert queue.claim("w") is None
    assert queue.get(silent.id).state is JobState.CANCELED
    for look in (queue.get, lambda id: queue.cancel(id, "bob")):
        with pytest.raises(NotFoundError):
            look("a\0'; DROP TABLE service_jobs; --")


def test_jobs_are_listed_newest_first_page_by_page(queue: JobQueue) -> None:
    for number in range(3):
        queue.submit(new(str(number)))
    queue.submit(new("x", "lab"))
    claimed(queue)

    def outputs(**which: Any) -> list[str]:
        return [job.output for job in queue.list(**which)]

    assert outputs() == ["x", "2", "1", "0"]
    assert outputs(projects=["team"], limit=2) == ["2", "1"]
    assert outputs(projects=[]) == []
    assert outputs(hidden=["team"]) == ["x"]
    assert outputs(states=[JobState.RUNNING]) == ["0"]
    (oldest,) = queue.list(projects=["lab"])
    assert outputs(before=oldest.number) == ["2", "1", "0"]


def test_two_workers_never_run_one_job(queue: JobQueue) -> None:
    for number in range(MOST_WAITING):
        queue.submit(new(str(number)))
    start = threading.Barrier(6)

    def work(worker: str) -> list[str]:
        taken = []
        start.wait()
        while (claim := queue.claim(worker)) is not None:
            taken.append(claim.job.output)
            queue.finish(claim, JobState.DONE)
        return taken

    with ThreadPoolExecutor(6) as pool:
        taken = [output for outputs in pool.map(work, map(str, range(6))) for output in outputs]
    assert sorted(taken, key=int) == [str(number) for number in range(MOST_WAITING)]

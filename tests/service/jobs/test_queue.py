"""The contract of a queue, on SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import update

from maskreg.errors import ConflictError, NotFoundError, TryAgainError
from maskreg.service.jobs import base
from maskreg.service.jobs.base import JobFilter, JobLimits, JobState, Lease, LeaseLostError, Meter, NewJob
from maskreg.service.jobs.models import JobRow
from maskreg.service.jobs.sql import SqlJobQueue
from tests.service.jobs.conftest import LEASE_S, pass_time

LIMITS = JobLimits(running=3, running_per_project=2, queued_per_project=4, attempts=2)


def new(output: str = "model", project: str = "team") -> NewJob:
    """A job that is not submitted yet."""
    return NewJob("apply", project, "ada", output, {"artifact": "team/opd", "source": None})


def claimed(queue: SqlJobQueue, worker: str = "w") -> Lease:
    """The next job of a queue."""
    lease = queue.claim(worker, LIMITS)
    assert lease is not None
    return lease


def test_a_job_runs_and_is_done(queue: SqlJobQueue) -> None:
    job = queue.submit(new(), LIMITS)
    assert (job.state, job.attempt, job.started, job.request) == (JobState.QUEUED, 0, None, new().request)
    lease = claimed(queue)
    assert (lease.job.id, lease.job.state, lease.job.attempt) == (job.id, JobState.RUNNING, 1)
    assert queue.claim("other", LIMITS) is None
    renewed = queue.renew(lease, Meter("apply", 5, 10))
    assert renewed.meter == Meter("apply", 5, 10)
    assert renewed.revision > lease.job.revision
    assert queue.renew(lease).revision == renewed.revision
    done = queue.finish(lease, JobState.DONE, result={"output": "model"})
    assert (done.state, done.result, done.error) == (JobState.DONE, {"output": "model"}, None)
    assert done.finished is not None
    assert done.started is not None
    assert done.created <= done.started <= done.finished
    assert queue.get(job.id) == done
    assert queue.claim("w", LIMITS) is None


def test_jobs_begin_in_the_order_of_submission_as_far_as_limits_allow(queue: SqlJobQueue) -> None:
    for project, output in (("team", "a"), ("team", "b"), ("team", "c"), ("lab", "d"), ("lab", "e")):
        queue.submit(new(output, project), LIMITS)
    leases = [claimed(queue) for _ in range(3)]
    assert [lease.job.output for lease in leases] == ["a", "b", "d"]  # two of a project, three at all
    assert queue.claim("w", LIMITS) is None
    queue.finish(leases[2], JobState.DONE)
    assert claimed(queue).job.output == "e"
    queue.finish(leases[0], JobState.FAILED, error={"code": "X"})
    assert claimed(queue).job.output == "c"


def test_no_more_wait_than_a_project_may_have(queue: SqlJobQueue) -> None:
    for number in range(LIMITS.queued_per_project):
        queue.submit(new(str(number)), LIMITS)
    with pytest.raises(TryAgainError, match="4 jobs of project team wait already"):
        queue.submit(new("more"), LIMITS)
    queue.submit(new("more", "lab"), LIMITS)


def test_no_two_jobs_make_the_same(queue: SqlJobQueue) -> None:
    first = queue.submit(new(), LIMITS)
    with pytest.raises(ConflictError, match=f"job {first.id} makes model already"):
        queue.submit(new(), LIMITS)
    queue.cancel(first.id, "ada")
    assert queue.submit(new(), LIMITS).id != first.id


def test_a_job_whose_worker_is_silent_is_taken_again_and_ends_once(queue: SqlJobQueue) -> None:
    queue.submit(new(), LIMITS)
    dead = claimed(queue, "dead")
    pass_time(queue, LEASE_S + 1)
    alive = claimed(queue, "alive")
    assert (alive.job.id, alive.job.attempt, alive.job.meter) == (dead.job.id, 2, Meter())
    with pytest.raises(LeaseLostError):
        queue.renew(dead, Meter("apply", 1, 1))
    with pytest.raises(LeaseLostError):
        queue.finish(dead, JobState.DONE, result={"by": "dead"})
    queue.release(dead, counted=True)
    assert queue.finish(alive, JobState.DONE, result={"by": "alive"}).result == {"by": "alive"}
    with pytest.raises(LeaseLostError):
        queue.finish(alive, JobState.FAILED)


def test_one_worker_that_takes_a_job_again_has_lost_its_earlier_lease(queue: SqlJobQueue) -> None:
    queue.submit(new(), LIMITS)
    earlier = claimed(queue)
    pass_time(queue, LEASE_S + 1)
    claimed(queue)
    with pytest.raises(LeaseLostError):
        queue.renew(earlier)


def test_a_renewed_lease_does_not_run_out(queue: SqlJobQueue) -> None:
    queue.submit(new(), LIMITS)
    lease = claimed(queue)
    for _ in range(4):
        pass_time(queue, LEASE_S / 2)
        queue.renew(lease)
        assert queue.claim("other", LIMITS) is None


def test_a_lease_that_ends_in_years_is_over(queue: SqlJobQueue) -> None:
    job = queue.submit(new(), LIMITS)
    lease = claimed(queue)
    with queue._transaction(queue._writing) as connection:
        connection.execute(update(JobRow).values(lease_until=JobRow.lease_until + 300))
    assert queue.claim("other", LIMITS) is None
    with queue._transaction(queue._writing) as connection:
        connection.execute(update(JobRow).values(lease_until=JobRow.lease_until + 3e7))
    again = claimed(queue, "other")
    assert (again.job.id, again.job.attempt) == (job.id, 2)
    with pytest.raises(LeaseLostError):
        queue.renew(lease)


def test_a_job_that_kills_its_workers_fails(queue: SqlJobQueue) -> None:
    job = queue.submit(new(), LIMITS)
    for _ in range(LIMITS.attempts):
        claimed(queue)
        pass_time(queue, LEASE_S + 1)
    assert queue.claim("w", LIMITS) is None
    failed = queue.get(job.id)
    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert failed.error["code"] == "WORKER_FAILED"


def test_what_a_dead_worker_held_is_free_at_once(queue: SqlJobQueue) -> None:
    job = queue.submit(new(), LIMITS)
    claimed(queue, "dead")
    queue.abandon("another")
    assert queue.claim("w", LIMITS) is None
    queue.abandon("dead")
    assert claimed(queue).job.attempt == 2
    assert queue.get(job.id).state is JobState.RUNNING


def test_a_worker_that_leaves_gives_its_job_back_untouched(queue: SqlJobQueue) -> None:
    queue.submit(new(), LIMITS)
    queue.release(claimed(queue), counted=False)
    assert claimed(queue).job.attempt == 1


def test_a_job_that_waits_is_canceled_at_once(queue: SqlJobQueue) -> None:
    job = queue.submit(new(), LIMITS)
    canceled = queue.cancel(job.id, "bob")
    assert (canceled.state, canceled.canceled_by) == (JobState.CANCELED, "bob")
    assert canceled.finished is not None
    assert queue.cancel(job.id, "eve").canceled_by == "bob"
    assert queue.claim("w", LIMITS) is None


def test_a_job_that_runs_learns_that_it_is_canceled(queue: SqlJobQueue) -> None:
    job = queue.submit(new(), LIMITS)
    lease = claimed(queue)
    assert queue.cancel(job.id, "bob").state is JobState.RUNNING
    assert queue.renew(lease).canceled_by == "bob"
    assert queue.finish(lease, JobState.CANCELED).state is JobState.CANCELED


def test_a_canceled_job_whose_worker_died_is_not_taken_again(queue: SqlJobQueue) -> None:
    job = queue.submit(new(), LIMITS)
    claimed(queue)
    queue.cancel(job.id, "bob")
    pass_time(queue, LEASE_S + 1)
    assert queue.claim("w", LIMITS) is None
    assert queue.get(job.id).state is JobState.CANCELED


def test_what_is_done_cannot_be_canceled(queue: SqlJobQueue) -> None:
    job = queue.submit(new(), LIMITS)
    queue.finish(claimed(queue), JobState.DONE)
    with pytest.raises(ConflictError, match="done already"):
        queue.cancel(job.id, "bob")


@pytest.mark.parametrize("id", ["", "nothing", "../../etc/passwd", "a\0b", "'; DROP TABLE jobs; --"])
def test_a_job_that_does_not_exist_is_not_found(id: str, queue: SqlJobQueue) -> None:
    for look in (queue.get, lambda id: queue.cancel(id, "bob")):
        with pytest.raises(NotFoundError):
            look(id)


def test_jobs_are_listed_newest_first_page_by_page(queue: SqlJobQueue) -> None:
    for number in range(3):
        queue.submit(new(str(number)), LIMITS)
    queue.submit(new("x", "lab"), LIMITS)
    claimed(queue)

    def outputs(which: JobFilter) -> list[str]:
        return [job.output for job in queue.list(which)]

    assert outputs(JobFilter()) == ["x", "2", "1", "0"]
    assert outputs(JobFilter(projects=["team"], limit=2)) == ["2", "1"]
    assert outputs(JobFilter(projects=[])) == []
    assert outputs(JobFilter(hidden=["team"])) == ["x"]
    assert outputs(JobFilter(states=[JobState.RUNNING])) == ["0"]
    (oldest,) = queue.list(JobFilter(projects=["lab"]))
    assert outputs(JobFilter(before=oldest.number)) == ["2", "1", "0"]
    assert outputs(JobFilter(after=oldest.number - 2)) == ["x", "2"]
    assert outputs(JobFilter(makes=("apply", "1"))) == ["1"]
    assert outputs(JobFilter(makes=("merge", "1"))) == []


@pytest.mark.parametrize("page", [1, 2, 3, 4])
def test_all_jobs_are_read_whatever_the_page(queue: SqlJobQueue, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PAGE", page)
    for number in range(3):
        queue.submit(new(str(number)), LIMITS)
    queue.submit(new("x", "lab"), LIMITS)
    assert [job.output for job in base.all_jobs(queue, JobFilter(projects=["team"], limit=1))] == ["2", "1", "0"]


def test_two_workers_never_run_one_job(queue: SqlJobQueue) -> None:
    limits = JobLimits(running=100, running_per_project=100, queued_per_project=100)
    for number in range(24):
        queue.submit(new(str(number)), limits)
    start = threading.Barrier(6)

    def work(worker: str) -> list[str]:
        taken = []
        start.wait()
        while (lease := queue.claim(worker, limits)) is not None:
            taken.append(lease.job.output)
            queue.finish(lease, JobState.DONE)
        return taken

    with ThreadPoolExecutor(6) as pool:
        taken = [output for outputs in pool.map(work, map(str, range(6))) for output in outputs]
    assert sorted(taken, key=int) == [str(number) for number in range(24)]

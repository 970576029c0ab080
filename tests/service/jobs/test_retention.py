"""How long jobs and what they wrote are kept, and how much they may write."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, select, update

import maskreg
from maskreg.errors import ConfigError, NotFoundError, QuotaError
from maskreg.service.jobs.base import Job, JobFilter, JobLimits, JobState
from maskreg.service.jobs.limits import NAMES, parse_limits
from maskreg.service.jobs.models import JobRow
from maskreg.service.jobs.requests import ApplyRequest, ExtractRequest
from maskreg.service.jobs.retention import _is_of_a_later_job, retire
from maskreg.service.jobs.sources import Sources
from maskreg.service.jobs.submitting import Submitter, new_job
from maskreg.service.jobs.worker import Worker
from tests.service.patching import Site, closing_site

ADA = Submitter("ada", lambda project: None, lambda project: None, lambda ref: None)
DAY = 86_400.0
LIMITS = JobLimits(keep_outputs_s=30 * DAY, keep_jobs_s=90 * DAY)


@pytest.fixture(scope="module")
def module_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with closing_site(tmp_path_factory.mktemp("site"), LIMITS) as site:
        yield site


@pytest.fixture
def site(module_site: Site, tmp_path: Path) -> Site:
    """The server, without jobs, and with an empty folder of outputs."""
    queue = module_site.patching.queue
    for job in queue.list(JobFilter(limit=1000)):
        queue.cancel(job.id, "test") if not job.state.is_final else None
        queue.forget(job.id)
    return with_limits(module_site, LIMITS, tmp_path)


def with_limits(site: Site, limits: JobLimits, outputs: Path | None = None) -> Site:
    patching = replace(site.patching, limits=limits, outputs=outputs or site.outputs)
    return replace(site, service=replace(site.service, patching=patching))


def applied(site: Site, output: str = "patched") -> Job:
    """A job that is done."""
    request = ApplyRequest(kind="apply", artifact="team/toy:v1", source="base", output=output)
    return worked(site, request)


def worked(site: Site, request: ApplyRequest | ExtractRequest) -> Job:
    queue = site.patching.queue
    job = queue.submit(new_job(site.service.registry, site.patching, request, ADA), site.patching.limits)
    lease = queue.claim("w", site.patching.limits)
    assert lease is not None
    Worker(site.bench, site.patching, "w", beat_s=0.05, accounts=site.service.accounts).work(lease)
    return queue.get(job.id)


def pass_days(site: Site, days: float, *jobs: Job) -> None:
    with site.patching.queue._transaction(site.patching.queue._writing) as connection:  # type: ignore[attr-defined]
        older = update(JobRow).values(finished=JobRow.finished - days * DAY)
        connection.execute(older.where(JobRow.id.in_([job.id for job in jobs])) if jobs else older)


def left(site: Site) -> set[str]:
    return {str(path.relative_to(site.outputs)) for path in site.outputs.glob("[!.]*/*")}


def jobs(site: Site) -> set[str]:
    return {job.id for job in site.patching.queue.list(JobFilter())}


def test_a_checkpoint_goes_when_its_time_is_over_and_the_job_later(site: Site) -> None:
    job = applied(site)
    assert job.state is JobState.DONE, job.error
    pass_days(site, 29)
    retire(site.patching)
    assert (left(site), jobs(site)) == ({"team/patched"}, {job.id})
    pass_days(site, 2)
    retire(site.patching)
    assert (left(site), jobs(site)) == (set(), {job.id})
    assert "removed" in (site.patching.queue.get(job.id).result or {})
    assert list((site.outputs / ".attempts").iterdir()) == []
    pass_days(site, 60)
    retire(site.patching)
    assert jobs(site) == set()
    assert applied(site).state is JobState.DONE


def test_a_checkpoint_of_a_later_job_stays(site: Site) -> None:
    first = applied(site)
    (site.outputs / "team" / "patched").rename(site.outputs / "team" / "kept")
    applied(site)
    pass_days(site, 31, first)
    retire(site.patching)
    assert left(site) == {"team/patched", "team/kept"}
    assert "removed" in (site.patching.queue.get(first.id).result or {})


def test_a_checkpoint_of_a_later_job_stays_however_many_jobs_came_after(site: Site) -> None:
    first = applied(site)
    (site.outputs / "team" / "patched").rename(site.outputs / "team" / "kept")
    latest = applied(site)
    queue = site.patching.queue
    with queue._transaction(queue._writing) as connection:  # type: ignore[attr-defined]
        row = dict(connection.execute(select(JobRow.__table__).where(JobRow.id == latest.id)).mappings().one())
        number = row.pop("number")
        others = [{**row, "number": number + n, "id": f"{n}", "output": f"team/{n}"} for n in range(1, 10_001)]
        connection.execute(insert(JobRow), others)
    assert _is_of_a_later_job(queue, first)
    assert not _is_of_a_later_job(queue, latest)
    with queue._transaction(queue._writing) as connection:  # type: ignore[attr-defined]
        connection.execute(delete(JobRow).where(JobRow.number > number))


def test_a_checkpoint_that_is_offered_stays(site: Site) -> None:
    applied(site)
    offered = Sources(named={"again": site.outputs / "team" / "patched"})
    pass_days(site, 100)
    retire(replace(site.patching, sources=offered))
    assert left(site) == {"team/patched"}
    assert len(jobs(site)) == 1


def test_what_a_name_points_to_stays_whatever_became_of_its_job(site: Site) -> None:
    request = ExtractRequest(kind="extract", source="base", target="tuned", name="team/again:v1")
    job = worked(site, request)
    assert job.state is JobState.DONE, job.error
    pass_days(site, 1000)
    retire(site.patching)
    assert jobs(site) == set()
    assert maskreg.verify("team/again:v1", workspace=site.service.workspace).ok


def test_nothing_goes_where_all_is_kept_for_ever(site: Site) -> None:
    applied(site)
    pass_days(site, 10_000)
    retire(with_limits(site, JobLimits(keep_outputs_s=0, keep_jobs_s=0)).patching)
    assert (left(site), len(jobs(site))) == ({"team/patched"}, 1)
    retire(with_limits(site, JobLimits(keep_outputs_s=0)).patching)
    assert (left(site), jobs(site)) == ({"team/patched"}, set())


def test_a_job_that_has_not_ended_is_never_deleted(site: Site) -> None:
    request = ApplyRequest(kind="apply", artifact="team/toy:v1", source="base", output="waits")
    queue = site.patching.queue
    job = queue.submit(new_job(site.service.registry, site.patching, request, ADA), LIMITS)
    queue.forget(job.id)
    queue.note_removed(job.id)
    assert queue.get(job.id) == job
    with pytest.raises(NotFoundError):
        queue.note_removed("0" * 16)


def test_a_worker_deletes_what_is_old_and_one_of_them_does(site: Site) -> None:
    job = applied(site)
    pass_days(site, 31)
    worker = Worker(site.bench, site.patching, "w", accounts=site.service.accounts)
    assert site.service.accounts.chores.claim("retire", 60)
    worker._retire()
    assert left(site) == {"team/patched"}
    site.service.accounts.chores.done("retire", 0)
    worker._retire()
    assert left(site) == set()
    assert "removed" in (site.patching.queue.get(job.id).result or {})


def test_a_worker_whose_clock_went_ahead_deletes_nothing_for_a_day(site: Site) -> None:
    applied(site)
    worker = Worker(site.bench, site.patching, "w", accounts=site.service.accounts)
    worker._retire()
    for days, outputs in ((1000, {"team/patched"}), (0.9, {"team/patched"}), (0.2, set())):
        pass_days(site, days)
        with site.service.accounts._database.write() as connection:
            connection.exec_driver_sql(f"UPDATE service_chores SET due = due - {days * DAY}")
        worker._retire()
        assert left(site) == outputs, days


def test_no_job_writes_more_than_it_may(site: Site) -> None:
    job = applied(site)
    size = job.request["bytes"]
    for limits, fault in (
        (JobLimits(max_bytes=size - 1), "a job may write"),
        (JobLimits(max_bytes_per_project=2 * size - 1), "the outputs of project team may have"),
    ):
        with pytest.raises(QuotaError, match=fault):
            applied(with_limits(site, limits), "more")
    assert applied(with_limits(site, JobLimits(max_bytes=size, max_bytes_per_project=2 * size)), "more").result
    pass_days(site, 31, job)
    retire(site.patching)
    assert applied(with_limits(site, JobLimits(max_bytes_per_project=2 * size)), "third").result


def test_an_output_that_was_made_twice_counts_once(site: Site) -> None:
    size = applied(site).request["bytes"]
    shutil.rmtree(site.outputs / "team" / "patched")
    applied(site)
    limited = with_limits(site, JobLimits(max_bytes_per_project=2 * size))
    assert applied(limited, "second").result
    with pytest.raises(QuotaError, match="the outputs of project team may have"):
        applied(limited, "third")


def test_limits_are_read_as_people_write_them() -> None:
    texts = ["running=8", "running-per-project=3", "waiting-per-project=5", "time=2h", "attempts=1", "bytes=50GB"]
    texts += ["bytes-per-project=1TB", "keep-outputs=7d", "keep-jobs=0s"]
    assert [text.partition("=")[0] for text in texts] == list(NAMES)
    assert parse_limits(texts) == JobLimits(8, 3, 5, 7200.0, 1, 50 * 10**9, 10**12, 7 * DAY, 0.0)
    assert parse_limits([]) == JobLimits()


@pytest.mark.parametrize("text", ["", "fast=1", "running", "running=0", "running=-1", "time=0s", "time=2", "bytes=x"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_limits([text])

"""What a worker does with jobs, in this process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import maskreg
from maskreg.errors import NotFoundError, OutputExistsError, QuotaError
from maskreg.ref import Ref
from maskreg.registry.trust.privatekeys import write_private_key
from maskreg.service.auth.roles import Role
from maskreg.service.jobs import kinds
from maskreg.service.jobs.base import Job, JobFilter, JobState, Lease, LeaseLostError
from maskreg.service.jobs.bench import Bench
from maskreg.service.jobs.kinds import Work
from maskreg.service.jobs.outputs import Attempt, sweep
from maskreg.service.jobs.patching import ATTEMPTS
from maskreg.service.jobs.requests import ApplyRequest, ExtractRequest, MergeRequest
from maskreg.service.jobs.submitting import Submitter, new_job
from maskreg.service.jobs.worker import Worker
from maskreg.signature import PrivateKey
from tests.service.patching import Site, site_in
from tests.service.serving import ROOT
from tests.workspace.conftest import contents

ADA = Submitter("ada", lambda project: None, lambda project: None, lambda ref: None)
BEAT_S = 0.05

Request = ApplyRequest | MergeRequest | ExtractRequest


@pytest.fixture(scope="module")
def module_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = site_in(tmp_path_factory.mktemp("site"))
    yield site
    site.patching.queue.close()
    site.service.workspace.close()


@pytest.fixture
def site(module_site: Site, tmp_path: Path) -> Site:
    """The server, with an empty folder of outputs."""
    patching = replace(module_site.patching, outputs=tmp_path)
    return replace(module_site, service=replace(module_site.service, patching=patching))


def submitted(site: Site, request: Request) -> Job:
    """A job of ada, who may do everything."""
    job = new_job(site.service.registry, site.patching, request, ADA)
    return site.patching.queue.submit(job, site.patching.limits)


def done(site: Site, request: Request) -> Job:
    """A job that a worker has dealt with."""
    job = submitted(site, request)
    worked(site)
    return site.patching.queue.get(job.id)


def worked(site: Site) -> None:
    """Let a worker deal with the next job."""
    lease = site.patching.queue.claim("w", site.patching.limits)
    assert lease is not None
    worker(site).work(lease)


def worker(site: Site) -> Worker:
    return Worker(site.bench, site.patching, "w", beat_s=BEAT_S, accounts=site.service.accounts)


def applying(**values: Any) -> ApplyRequest:
    return ApplyRequest(kind="apply", **{"artifact": "team/toy:v1", "output": "patched", **values})


def test_applying_gives_the_target_and_says_that_it_was_verified(site: Site) -> None:
    job = done(site, applying(source="base"))
    assert job.state is JobState.DONE, job.error
    assert job.result is not None
    manifest = site.service.workspace.find("team/toy:v1").manifest
    assert job.result["root"] == manifest.target.root
    assert (job.result["output"], job.result["source"]) == ("team/patched", "base")
    assert job.result["tensors"] == job.result["verified_tensors"] == 3
    assert site.weights(site.outputs / "team" / "patched") == site.target
    assert list((site.outputs / ATTEMPTS).iterdir()) == []
    assert str(site.folder) not in str(job.to_json())
    assert (job.meter.phase, job.meter.total) == ("apply", job.result["bytes"])
    assert job.meter.done == job.request["bytes"]


def test_the_source_is_found_among_those_that_are_offered(site: Site) -> None:
    job = done(site, applying(output="found"))
    assert job.result is not None, job.error
    assert job.result["source"] == "base"


def test_reverting_gives_the_source(site: Site) -> None:
    job = done(site, applying(source="tuned", output="back", revert=True))
    assert job.state is JobState.DONE, job.error
    assert site.weights(site.outputs / "team" / "back") == site.weights(site.folder / "models" / "base")


def test_a_wrong_source_fails_and_leaves_nothing(site: Site) -> None:
    job = done(site, applying(source="tuned"))
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert job.error["code"] == "ALREADY_APPLIED"
    assert str(site.folder) not in str(job.error)
    assert contents(site.outputs) == {}


def test_an_output_that_appeared_meanwhile_stays(site: Site) -> None:
    submitted(site, applying(source="base"))
    taken = site.outputs / "team" / "patched"
    taken.mkdir(parents=True)
    (taken / "mine").touch()
    worked(site)
    (job,) = site.patching.queue.list(JobFilter(limit=1))
    assert job.error is not None
    assert job.error["code"] == OutputExistsError.code
    assert contents(site.outputs) == {"team/patched/mine": b""}


def test_a_merge_is_registered_in_the_name_of_who_submitted_it(site: Site) -> None:
    request = MergeRequest(
        kind="merge", artifacts=["team/toy:v1", "team/toy:second"], name="team/sum:v1", method="task-arithmetic"
    )
    job = done(site, request)
    assert job.result is not None, job.error
    named = site.service.workspace.find("team/sum:v1")
    assert (job.result["digest"], job.result["ref"]) == (str(named.digest), "team/sum:v1")
    assert (named.card.method, len(named.manifest.parents)) == ("merge", 2)
    head = site.service.registry.live(named.ref)  # type: ignore[arg-type]
    assert head.by == "ada"


def test_an_extraction_is_registered(site: Site) -> None:
    request = ExtractRequest(
        kind="extract", source="base", target="tuned", name="team/again", family="toy", method="opd", reversible=True
    )
    job = done(site, request)
    assert job.result is not None, job.error
    named = site.service.workspace.find("team/again")
    assert named.digest == site.service.workspace.find("team/toy:v1").digest
    assert (named.card.family, named.card.method) == ("toy", "opd")


def test_an_artifact_that_a_project_has_no_room_for_is_not_registered(site: Site) -> None:
    projects = site.service.accounts.projects
    projects.change("team", ROOT, max_artifacts=1)
    request = MergeRequest(
        kind="merge", artifacts=["team/toy:v1"], name="team/other:v1", method="scale", settings={"factor": 0.25}
    )
    job = done(site, request)
    projects.change("team", ROOT, max_artifacts=None)
    assert job.error is not None
    assert job.error["code"] == QuotaError.code
    with pytest.raises(NotFoundError):
        site.service.workspace.find("team/other:v1")


def test_what_a_server_signs_its_jobs_sign(site: Site) -> None:
    key = site.folder / "key.pem"
    private = PrivateKey.generate()
    write_private_key(private, key)
    job = submitted(site, ExtractRequest(kind="extract", source="base", target="tuned", name="signed/toy"))
    lease = site.patching.queue.claim("w", site.patching.limits)
    assert lease is not None
    bench = replace(site.bench, signing_key=str(key))
    site.service.accounts.members.grant("signed", "ada", Role.WRITER, ROOT)
    Worker(bench, site.patching, "w", beat_s=BEAT_S, accounts=site.service.accounts).work(lease)
    assert site.patching.queue.get(job.id).state is JobState.DONE
    head = site.service.registry.live(Ref.parse("signed/toy"))
    assert head.signer == private.key


def interrupting(monkeypatch: pytest.MonkeyPatch, act: Callable[[Work], None]) -> None:
    """Let every kind of job run as before, and then wait until ``act`` has stopped it."""

    def apply(work: Work) -> Mapping[str, Any]:
        Attempt(work.patching, work.job).begin()
        work.progress.start("apply", 100)
        work.progress.advance(40)
        act(work)
        threading.Event().wait(60)
        raise AssertionError("it was not interrupted")

    monkeypatch.setattr(kinds, "KINDS", {"apply": apply})
    monkeypatch.setattr("maskreg.service.jobs.worker.KINDS", {"apply": apply})


def test_a_job_that_runs_is_canceled_and_leaves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def cancel(work: Work) -> None:
        site.patching.queue.cancel(work.job.id, "bob")

    interrupting(monkeypatch, cancel)
    job = done(site, applying())
    assert (job.state, job.canceled_by, job.result) == (JobState.CANCELED, "bob", None)
    assert (job.meter.phase, job.meter.done) == ("apply", 40)
    assert contents(site.outputs) == {}


def test_a_job_that_takes_too_long_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupting(monkeypatch, lambda work: None)
    brief = replace(site.patching, limits=replace(site.patching.limits, seconds=0.1))
    site = replace(site, service=replace(site.service, patching=brief))
    job = done(site, applying())
    assert job.error is not None
    assert (job.state, job.error["code"]) == (JobState.FAILED, "TOO_LONG")


def test_a_worker_that_leaves_gives_its_job_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    leaving = worker(site)
    interrupting(monkeypatch, lambda work: leaving.leave())
    job = submitted(site, applying())
    leaving.run()
    leaving = worker(site)
    lease = site.patching.queue.claim("w", site.patching.limits)
    assert lease is not None
    leaving.work(lease)
    back = site.patching.queue.get(job.id)
    assert (back.state, back.attempt) == (JobState.QUEUED, 0)
    site.patching.queue.cancel(job.id, "test")


def test_a_worker_that_lost_its_lease_leaves_the_job_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(work: Work) -> None:
        site.patching.queue.abandon("w")
        site.patching.queue.claim("another", site.patching.limits)

    interrupting(monkeypatch, lose)
    job = done(site, applying())
    assert (job.state, job.attempt) == (JobState.RUNNING, 2)
    site.patching.queue.finish(Lease(job, "another"), JobState.CANCELED)


def test_what_nobody_expected_is_tried_again_and_then_fails(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(work: Work) -> Mapping[str, Any]:
        raise ZeroDivisionError

    monkeypatch.setattr("maskreg.service.jobs.worker.KINDS", {"apply": crash})
    job = submitted(site, applying())
    for _ in range(site.patching.limits.attempts):
        lease = site.patching.queue.claim("w", site.patching.limits)
        assert lease is not None
        with pytest.raises(ZeroDivisionError):
            worker(site).work(lease)
    assert site.patching.queue.claim("w", site.patching.limits) is None
    failed = site.patching.queue.get(job.id)
    assert failed.error is not None
    assert failed.error["code"] == "WORKER_FAILED"


@pytest.mark.parametrize("point", ["written", "publish"])
def test_an_attempt_that_dies_at_its_end_is_completed_by_the_next(
    point: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before, or just after, the checkpoint got its name: as after kill -9, the folder stays as it is."""

    class KilledError(BaseException):
        """Ends an attempt with nothing cleaned up."""

    original = getattr(Attempt, point)

    def die(self: Attempt, *args: Any) -> None:
        original(self, *args)
        raise KilledError

    job = submitted(site, applying(source="base"))
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(Attempt, point, die)
        worked(site)
    assert (site.outputs / "team" / "patched").exists() == (point == "publish")
    # Whatever is done again would fail: nothing but giving the name and saying so is left.
    monkeypatch.setattr(kinds, "apply", None)
    worked(site)
    ended = site.patching.queue.get(job.id)
    assert ended.state is JobState.DONE, ended.error
    assert site.weights(site.outputs / "team" / "patched") == site.target
    assert list((site.outputs / ATTEMPTS).iterdir()) == []


def test_a_worker_whose_job_was_published_by_another_has_lost_it(site: Site) -> None:
    job = submitted(site, applying(source="base"))
    lease = site.patching.queue.claim("w", site.patching.limits)
    assert lease is not None
    attempt = Attempt(site.patching, lease.job)
    assert attempt.begin() is None
    attempt.remove()
    with pytest.raises(LeaseLostError):
        attempt.publish()
    site.patching.queue.finish(lease, JobState.CANCELED)
    assert site.patching.queue.get(job.id).state is JobState.CANCELED


def test_what_killed_attempts_left_is_swept_when_their_job_has_ended(site: Site) -> None:
    job = submitted(site, applying())
    for id in (job.id, "of-no-job"):
        (site.patching.attempt(id) / "1").mkdir(parents=True)
    sweep(site.patching, site.patching.queue)
    assert [path.name for path in (site.outputs / ATTEMPTS).iterdir()] == [job.id]
    site.patching.queue.cancel(job.id, "test")
    sweep(site.patching, site.patching.queue)
    assert list((site.outputs / ATTEMPTS).iterdir()) == []


@pytest.mark.parametrize(
    "request_",
    [
        ExtractRequest(kind="extract", source="base", target="tuned", name="left/toy"),
        ApplyRequest(kind="apply", artifact="left/toy:v1", project="team", source="base", output="left"),
        MergeRequest(kind="merge", artifacts=["team/toy:v1", "left/toy:v1"], name="team/sum", method="linear"),
    ],
    ids=["a project to write to", "an artifact to read", "one of several"],
)
def test_a_job_of_a_member_who_was_removed_is_not_begun(site: Site, request_: Request) -> None:
    accounts = site.service.accounts
    accounts.members.grant("left", "ada", Role.WRITER, ROOT)
    maskreg.tag("team/toy:v1", "left/toy:v1", workspace=site.service.workspace)
    job = submitted(site, request_)
    accounts.members.revoke("left", "ada", ROOT)
    worked(site)
    ended = site.patching.queue.get(job.id)
    assert (ended.state, (ended.error or {})["code"]) == (JobState.FAILED, "DENIED")
    assert not contents(site.outputs)


def test_a_bench_survives_the_way_to_another_process(site: Site) -> None:
    assert Bench.loads(site.bench.dumps()) == site.bench


def test_a_worker_runs_without_torch() -> None:
    script = "import maskreg.service.jobs.worker, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"

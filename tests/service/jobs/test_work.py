"""What an attempt at a job does, in this process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import maskreg
from maskreg import disk
from maskreg.errors import NotFoundError, QuotaError, UnavailableError
from maskreg.ref import Ref
from maskreg.registry.keys import write_private_key
from maskreg.service.app import create_app
from maskreg.service.auth.roles import Role
from maskreg.service.auth.tokens import Scope
from maskreg.service.jobs import work as working
from maskreg.service.jobs.queue import COMMITTED, Claim
from maskreg.service.jobs.work import Reports, work
from maskreg.signature import PrivateKey
from maskreg.workspace.verbs.jobs import Job, JobState
from tests.service.patching import Site
from tests.service.serving import ROOT, headers
from tests.workspace.conftest import contents

APPLY = {"kind": "apply", "artifact": "team/toy:v1", "source": "base", "output": "patched"}
EXTRACT = {"kind": "extract", "source": "base", "target": "tuned"}


def submitted(site: Site, **body: object) -> str:
    accounts = site.service.accounts
    token = accounts.tokens.create("ada", Scope("*", Role.WRITER), accounts.named("ada")).token
    client = TestClient(create_app(site.service), headers=headers(token))
    answer = client.post("/api/v1/patches", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def claimed(site: Site) -> Claim:
    claim = site.queue.claim("w")
    assert claim is not None
    return claim


def attempted(site: Site, **body: object) -> Job:
    id = submitted(site, **body)
    claim = claimed(site)
    assert claim.job.id == id
    work(site.config, claim)
    return site.queue.get(id)


def test_applying_gives_the_target_and_says_what_was_checked(site: Site) -> None:
    job = attempted(site, **APPLY)
    assert job.result is not None, job.error
    assert job.result["root"] == site.service.workspace.find("team/toy:v1").manifest.target.root
    assert (job.result["output"], job.result["source"]) == ("team/patched", "base")
    assert job.result["tensors"] == job.result["verified_tensors"] == 3
    assert site.weights(site.outputs / "team" / "patched") == site.target
    assert str(site.folder) not in str(job)
    assert job.progress.phase == COMMITTED
    assert 0 < job.progress.done <= job.progress.total == job.result["bytes"]
    assert [line.split()[1].strip(",") for line in job.log] == ["attempt", "apply", COMMITTED]


def test_the_source_is_found_among_those_that_are_offered_and_reverting_gives_it(site: Site) -> None:
    job = attempted(site, **{**APPLY, "source": None, "revert": True})
    assert job.result is not None, job.error
    assert job.result["source"] == "tuned"
    assert site.weights(site.outputs / "team" / "patched") == site.weights(site.folder / "models" / "base")


def test_a_wrong_source_fails_with_its_code_and_without_a_path(site: Site) -> None:
    job = attempted(site, **{**APPLY, "source": "tuned"})
    assert (job.state, (job.error or {})["code"]) == (JobState.FAILED, "ALREADY_APPLIED")
    assert str(site.folder) not in str(job.error)
    assert not (site.outputs / "team").exists()


def test_an_output_that_appeared_meanwhile_stays(site: Site) -> None:
    submitted(site, **APPLY)
    taken = site.outputs / "team" / "patched"
    taken.mkdir(parents=True)
    (taken / "mine").touch()
    work(site.config, claim := claimed(site))
    assert (site.queue.get(claim.job.id).error or {})["code"] == "OUTPUT_EXISTS"
    assert contents(site.outputs) == {"team/patched/mine": b""}


def test_a_merge_is_registered_in_the_name_of_its_submitter(site: Site) -> None:
    artifacts = ["team/toy:v1", "team/toy:second"]
    job = attempted(site, kind="merge", artifacts=artifacts, name="team/sum:v1", method="task-arithmetic")
    assert job.result is not None, job.error
    named = site.service.workspace.find("team/sum:v1")
    assert (job.result["digest"], job.result["ref"]) == (str(named.digest), "team/sum:v1")
    assert (named.card.method, len(named.manifest.parents)) == ("merge", 2)
    assert site.service.registry.live(Ref.parse("team/sum:v1")).by == "ada"


def test_an_extraction_is_registered_and_signed_as_the_server_signs(site: Site) -> None:
    site.service.accounts.members.grant("signed", "ada", Role.WRITER, ROOT)
    key = site.folder / "key.pem"
    private = PrivateKey.generate()
    write_private_key(private, key)
    card = {"family": "toy", "method": "opd", "reversible": True}
    job = attempted(site.having(signing_key=str(key)), **EXTRACT, **card, name="signed/again")
    assert job.result is not None, job.error
    named = site.service.workspace.find("signed/again")
    assert named.digest == site.service.workspace.find("team/toy:v1").digest
    assert (named.card.family, named.card.method) == ("toy", "opd")
    assert site.service.registry.live(Ref.parse("signed/again")).signer == private.key


def test_an_artifact_that_a_project_has_no_room_for_is_not_registered(site: Site) -> None:
    projects = site.service.accounts.projects
    projects.change("team", ROOT, max_artifacts=1)
    scaled = {"artifacts": ["team/toy:v1"], "method": "scale", "settings": {"factor": 0.25}}
    job = attempted(site, kind="merge", name="team/other:v1", **scaled)
    projects.change("team", ROOT, max_artifacts=None)
    assert (job.error or {})["code"] == QuotaError.code
    with pytest.raises(NotFoundError):
        site.service.workspace.find("team/other:v1")


@pytest.mark.parametrize(
    "body",
    [
        {**EXTRACT, "name": "left/toy"},
        {**APPLY, "artifact": "left/toy:v1", "project": "team"},
        {"kind": "merge", "artifacts": ["team/toy:v1", "left/toy:v1"], "name": "team/sum", "method": "linear"},
    ],
    ids=["a project to write to", "an artifact to read", "one of several"],
)
def test_a_job_of_a_member_who_was_removed_fails(site: Site, body: dict[str, object]) -> None:
    accounts = site.service.accounts
    accounts.members.grant("left", "ada", Role.WRITER, ROOT)
    maskreg.tag("team/toy:v1", "left/toy:v1", workspace=site.service.workspace)
    submitted(site, **body)
    accounts.members.revoke("left", "ada", ROOT)
    work(site.config, claim := claimed(site))
    assert (site.queue.get(claim.job.id).error or {})["code"] == "DENIED"
    assert not contents(site.outputs)


@pytest.mark.parametrize("is_published", [False, True])
def test_an_attempt_that_dies_at_its_end_is_completed_by_the_next(
    is_published: bool, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        """Ends an attempt with nothing cleaned up."""

    original = disk.rename_new

    def die(source: Path, target: Path) -> None:
        if is_published:
            original(source, target)
        raise KilledError

    submitted(site, **APPLY)
    claim = claimed(site)
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(working, "rename_new", die)
        work(site.config, claim)
    assert (site.outputs / "team" / "patched").exists() == is_published
    site.queue.release(claim, counted=True)
    again = claimed(site)
    # Applying again would fail: only the name is left to give.
    monkeypatch.setattr(working, "apply", None)
    work(site.config, again)
    assert site.queue.get(again.job.id).state is JobState.DONE
    assert site.weights(site.outputs / "team" / "patched") == site.target


def test_a_log_goes_on_after_the_commit_and_names_none_of_the_servers_parts(site: Site) -> None:
    submitted(site, **APPLY)
    reports = Reports(site.queue, claim := claimed(site))
    reports.commit()
    reports.start("push", 8)
    reports.say(UnavailableError("https://minio.internal:9000 does not answer"))
    now = site.queue.get(claim.job.id)
    site.queue.finish(claim, JobState.CANCELED)
    assert (now.progress.phase, len(now.log)) == (COMMITTED, 4)
    assert "minio.internal" not in str(now)


def test_an_attempt_is_made_without_torch() -> None:
    script = "import maskreg.service.jobs.work, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"

"""One attempt at a job, in a process of its own: the use cases that the command line calls, on what the server has.

A checkpoint is written in a folder of the attempt, and renamed to the output's name when it is whole. A job that was
begun twice ends once, wherever its process was killed::

    .attempts/JOB/1/checkpoint      being written                   killed: the next attempt begins anew
    .attempts/JOB/1/result.json     written when it is whole        killed: the next attempt finds it, and goes on
    PROJECT/NAME                    renamed from there              killed: the next attempt finds result.json alone
    (the queue)                     done, with the result           .attempts/JOB is removed
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

from maskreg import errors
from maskreg.digest import Digest
from maskreg.disk import creating, make_folder, occupied, rename_new, replacing, sync_folder
from maskreg.document import parse_object
from maskreg.ref import Card, Ref
from maskreg.registry.pull import bring
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import ROLE_HINT, Role
from maskreg.service.gateway.admission import check_room
from maskreg.service.gateway.verification import request_first_check
from maskreg.service.jobs.config import JobConfig, signer_of
from maskreg.service.jobs.queue import COMMITTED, Claim, JobQueue
from maskreg.service.observing import configure
from maskreg.service.problems import public_of, without_paths
from maskreg.store.message import public_facts
from maskreg.words import human_bytes
from maskreg.workspace.verbs.apply import Applied, apply
from maskreg.workspace.verbs.extract import ExtractOptions, extract
from maskreg.workspace.verbs.jobs import Job, JobProgress, JobState
from maskreg.workspace.verbs.merge import Merged, merge
from maskreg.workspace.verbs.push import push
from maskreg.workspace.verbs.tag import tag
from maskreg.workspace.workspace import Workspace

ResultT = TypeVar("ResultT")
Result = Mapping[str, Any]

_REPORT_S = 1.0
_LOG_LINES = 40
_LINE_CHARS = 400
_MAX_RESULT_BYTES = 1 << 20

_log = logging.getLogger("maskreg.jobs")


class Reports:
    """Progress of an attempt, written to the queue once a second, and its log. Safe to use from many threads.

    A queue that does not answer stops no work: the worker ends an attempt whose heartbeat is missing.
    """

    def __init__(self, queue: JobQueue, claim: Claim) -> None:
        self._queue, self._claim = queue, claim
        self._now, self._sent, self._lock, self._committed = JobProgress(), 0.0, threading.Lock(), False
        self._log = deque(claim.job.log, _LOG_LINES)
        self._add(f"attempt {claim.job.attempt} begins")

    def say(self, text: str | errors.MaskregError, level: int = logging.INFO) -> None:
        """Write a line to the server's log as it is, and to the job's as clients hear it."""
        _log.log(level, "job %s: %s", self._claim.job.id, text)
        with self._lock:
            self._add(str(public_of(text) if isinstance(text, errors.MaskregError) else text))
            self._report(self._now)

    def start(self, label: str, total_bytes: int) -> None:
        """Begin a phase."""
        with self._lock:
            self._add(f"{label}, {human_bytes(total_bytes)}" if total_bytes else label)
            self._report(JobProgress(label, 0, total_bytes))

    def _add(self, text: str) -> None:
        line = " ".join(without_paths(text).split())
        self._log.append(f"{datetime.now(UTC):%H:%M:%S} {line[:_LINE_CHARS]}")
        self._sent = 0.0  # it is written at once

    def advance(self, n_bytes: int) -> None:
        """Add to what the phase has done."""
        with self._lock:
            self._report(replace(self._now, done=self._now.done + n_bytes))

    def commit(self) -> None:
        """Begin to make the result visible; ends the process where the job was canceled, or lost, meanwhile."""
        with self._lock:
            self._add(COMMITTED)
            self._queue.report(self._claim, self._now, self._log)
            if not self._queue.commit(self._claim):
                raise SystemExit
            self._committed = True

    def _report(self, now: JobProgress) -> None:
        # The phase keeps the job from being canceled.
        self._now = replace(now, phase=COMMITTED) if self._committed else now
        if time.monotonic() - self._sent >= _REPORT_S:
            self._sent = time.monotonic()
            try:
                self._queue.report(self._claim, self._now, self._log)
            except errors.MaskregError as error:
                _log.warning("job %s: no progress: %s", self._claim.job.id, error)


@dataclass(frozen=True)
class Attempt:
    """One attempt at a job."""

    job: Job
    config: JobConfig
    space: Workspace
    accounts: Accounts
    reports: Reports

    def check_roles(self) -> None:
        """Check what was checked at submission: the submitter can have left a project since."""
        request, by = self.job.request, self.accounts.named(self.job.by)
        read = [request.get("artifact"), *request.get("artifacts", ()), request.get("mask")]
        demands = [(self.job.project, Role.WRITER), *((Ref.parse(text).project, Role.READER) for text in read if text)]
        for project, role in demands:
            if by.role(project) < role:
                state = f"{self.job.by} is no longer a {role.name.lower()} of project {project}"
                raise errors.NotAllowedError(state, hint=ROLE_HINT)

    def bring(self, text: str, *parts: str) -> Ref:
        """Bring an artifact that a request names, pinned, to the local registry of the server."""
        ref = Ref.parse(text)
        assert ref.digest is not None  # pinned when the job was submitted
        if self.config.remote is not None:
            registry, jobs = self.space.registry(self.config.remote), self.space.settings.jobs
            bring(self.space.local, registry, ref.digest, parts=parts, progress=self.reports, jobs=jobs)
        return ref

    def with_source(self, root: str, work: Callable[[Path], ResultT]) -> tuple[ResultT, str]:
        """Do work on the checkpoint that the request names, or on the first one offered that is the source.

        ``work`` raises ``WrongCheckpointError`` for any other.
        """
        if (name := self.job.request["source"]) is not None:
            return work(self.config.source(name)), name
        seen = set(self.space.local.index.seen_sources(root))
        offered = self.config.offered()
        for name, path in sorted(offered.items(), key=lambda item: (str(item[1].absolute()) not in seen, item[0])):
            try:
                return work(path), name
            except errors.WrongCheckpointError:
                self.reports.say(f"{name} is not the source")
        raise errors.NotFoundError(
            f"none of the checkpoints that the server offers ({', '.join(offered) or 'none'}) is the source",
            hint="ask the operator to offer it",
        )

    def register(self, digest: Digest, size: int, card: Card) -> Result:
        """Point the name that the request wants at an artifact, in the name of its submitter."""
        registry, name = self.space.registry(self.config.remote), Ref.parse(self.job.request["name"])
        check_room(self.accounts, registry, self.job.project, digest, size)
        self.reports.commit()
        registry.trust.signer = signer_of(self.config.signing_key, self.config.settings, self.config.remote)
        tag(digest, name, card=card, by=self.job.by, workspace=self.space)
        if self.config.remote is not None:
            self.space.remote(self.config.remote).by = self.job.by
            push(name, remote=self.config.remote, force=True, progress=self.reports, workspace=self.space)
        request_first_check(self.accounts, registry, digest, self.job.by)
        return {"ref": str(name), "digest": str(digest), "verified": True}


def _apply(attempt: Attempt) -> Result:
    """Apply an artifact to a checkpoint of the server, and give the result its name."""
    job, config = attempt.job, attempt.config
    folder, output = config.attempts / job.id, config.outputs / job.output
    # An earlier attempt that was killed when nothing was left but to give the checkpoint its name.
    said = next(folder.glob("*/result.json"), folder / str(job.attempt) / "result.json")
    checkpoint = said.with_name("checkpoint")
    if occupied(said):
        result: Result = parse_object(said.read_bytes(), said.name, max_bytes=_MAX_RESULT_BYTES)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        if occupied(output):
            raise errors.OutputExistsError(job.output, reason="on the server", hint="choose another output")
        with creating(said.parent):
            make_folder(said.parent)
        result = _written(attempt, checkpoint)
        with replacing(said) as file:
            file.write(json.dumps(result).encode())
    attempt.reports.commit()
    if occupied(checkpoint):
        with creating(output):
            make_folder(output.parent)
            rename_new(checkpoint, output)
            sync_folder(output.parent)
    return result


def _written(attempt: Attempt, checkpoint: Path) -> Result:
    request = attempt.job.request
    ref = attempt.bring(request["artifact"], "reverse" if request["revert"] else "delta", "mask")
    manifest = attempt.space.find(ref).manifest
    before, after = manifest.source, manifest.target
    if request["revert"]:
        before, after = after, before

    def patch(path: Path) -> Applied:
        options = {"revert": request["revert"], "progress": attempt.reports, "workspace": attempt.space}
        return apply(ref, path, checkpoint, **options)

    written, source = attempt.with_source(before.root, patch)
    lists = ("skipped_files", "code_files", "code_left_out")
    return {
        "output": attempt.job.output,
        "artifact": str(ref),
        "digest": str(ref.digest),
        "source": source,
        # Under a rule that drops small changes, the result is the target of nothing.
        "root": after.root if manifest.exact or request["revert"] else None,
        "tensors": written.tensors,
        "verified_tensors": written.tensors,
        "bytes": written.bytes,
        **{name: list(getattr(written, name)) for name in lists},
        "notes": [without_paths(note) for note in written.notes],
    }


def _merge(attempt: Attempt) -> Result:
    """Merge artifacts, and register the result."""
    request, space = attempt.job.request, attempt.space
    registry = space.registry(attempt.config.remote)
    refs = [attempt.bring(text, "mask", "delta") for text in request["artifacts"]]
    masks = {} if request["mask"] is None else {"mask": attempt.bring(request["mask"], "mask")}
    families = {registry.resolve(ref).card.family for ref in refs}

    def combine(path: Path) -> Merged:
        return merge(
            refs,
            method=request["method"],
            weights=request["weights"],
            settings={**request["settings"], **masks},
            source=path,
            progress=attempt.reports,
            workspace=space,
        )

    made, source = attempt.with_source(space.find(refs[0]).manifest.source.root, combine)
    assert made.digest is not None  # without an output, a merge makes an artifact
    card = Card(families.pop() if len(families) == 1 else "", "merge", description=request["description"])
    registered = attempt.register(made.digest, space.find(made.digest).size, card)
    notes = [without_paths(note) for note in made.notes]
    return {**registered, "source": source, "report": made.to_json()["report"], "notes": notes}


def _extract(attempt: Attempt) -> Result:
    """Compare two checkpoints, and register what moved."""
    request = attempt.job.request
    source, target = (attempt.config.source(request[side]) for side in ("source", "target"))
    options = {name: request[name] for name in ExtractOptions.__annotations__ if name in request}
    made = extract(source, target, **options, progress=attempt.reports, workspace=attempt.space)
    registered = attempt.register(made.digest, made.size, made.card)
    notes = [without_paths(note) for note in made.notes]
    return {**registered, "source": request["source"], "target": request["target"], "notes": notes}


KINDS: Mapping[str, Callable[[Attempt], Result]] = {"apply": _apply, "merge": _merge, "extract": _extract}
"""What each kind of job does; gives the result that the job shows."""


def work(config: JobConfig, claim: Claim) -> None:
    """Make an attempt at a job in this process, which ends with its worker's; a job left unended is tried again."""
    # Ctrl-C goes to every process of a terminal; the worker says when to leave, by killing this process.
    if parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        configure()
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    job = claim.job
    with closing(Accounts.open(config.url)) as accounts, Workspace(config.settings) as space:
        queue = JobQueue(accounts.database)
        reports = Reports(queue, claim)
        space.note = reports.say
        try:
            attempt = Attempt(job, config, space, accounts, reports)
            attempt.check_roles()
            queue.finish(claim, JobState.DONE, result=KINDS[job.kind](attempt))
        except (errors.TryAgainError, errors.UnavailableError) as error:
            reports.say(error, logging.WARNING)
        except errors.MaskregError as error:
            public = public_of(error)
            more = {"hint": without_paths(public.hint), "facts": public_facts(errors.plain_facts(public.facts))}
            said = {"code": public.code, "title": without_paths(public.message)}
            queue.finish(claim, JobState.FAILED, error={**said, **{name: each for name, each in more.items() if each}})


def _end_with_the_worker() -> None:
    if parent := parent_process():
        wait([parent.sentinel])
        os._exit(70)

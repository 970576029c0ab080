"""The worker: takes one job after another, and does it in this process.

Started by :mod:`maskreg.service.jobs.processes` as ``python -m maskreg.service.jobs.worker NAME``. The first line of
its standard input says what it needs to know. The rest is empty and ends when whoever started it does: then the worker
gives its job back, and ends too.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from types import FrameType

from maskreg.digest import Digest
from maskreg.errors import MaskregError, NotAllowedError, TryAgainError, UnavailableError
from maskreg.progress import Progress
from maskreg.ref import Ref
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import ROLE_HINT, Principal, Role
from maskreg.service.faults import public_of, without_paths
from maskreg.service.gateway.admission import check_room
from maskreg.service.gateway.verification import request_first_check
from maskreg.service.jobs.base import Job, JobState, Lease, LeaseLostError
from maskreg.service.jobs.bench import Bench
from maskreg.service.jobs.kinds import KINDS, Work
from maskreg.service.jobs.outputs import Attempt, sweep
from maskreg.service.jobs.patching import Patching
from maskreg.service.jobs.retention import retire
from maskreg.service.jobs.watch import BEAT_S, Interrupted, Reason, Watch, leave_at_once
from maskreg.service.observing import configure
from maskreg.service.signing import signer_of
from maskreg.workspace.workspace import Workspace

POLL_S = 0.5
"""How often an idle worker looks for a job, in seconds."""

SWEEP_S = 60.0
"""How often an idle worker looks for what killed attempts have left, in seconds."""

RETIRE_S = 600.0
"""How often what is older than jobs are kept is deleted, in seconds."""

_RETIRE = "retire"

_log = logging.getLogger("maskreg.jobs")


class Worker:
    """Takes jobs until it is told to leave. Runs in the main thread of its process.

    Attributes:
        name: of this worker, unique among all.
    """

    def __init__(
        self,
        bench: Bench,
        patching: Patching,
        name: str,
        *,
        beat_s: float = BEAT_S,
        accounts: Accounts,
    ) -> None:
        """Work on the jobs of a server.

        Args:
            bench: the server.
            patching: its queue, open.
            name: of this worker, unique among all.
            beat_s: how often leases are renewed, in seconds.
            accounts: know the limits of projects, and keep the audit log.
        """
        self.name = name
        self._bench, self._patching, self._beat_s, self._accounts = bench, patching, beat_s, accounts
        self._leaving = threading.Event()
        self._watch: Watch | None = None

    def leave(self) -> None:
        """Give the job back that is worked on, and take no other."""
        self._leaving.set()
        if self._watch is not None:
            self._watch.stop(Reason.LEAVING)

    def run(self) -> None:
        """Take jobs until :meth:`leave` is called."""
        swept = -SWEEP_S
        while not self._leaving.is_set():
            try:
                lease = self._patching.queue.claim(self.name, self._patching.limits)
                if lease is not None:
                    self.work(lease)
                    continue
                if time.monotonic() - swept > SWEEP_S:
                    sweep(self._patching, self._patching.queue)
                    self._retire()
                    swept = time.monotonic()
            except (TryAgainError, UnavailableError) as error:
                _log.warning("%s", error)
            self._leaving.wait(POLL_S)

    def _retire(self) -> None:
        # One worker of all does this; so do not all look at all jobs.
        chores = self._accounts.chores
        if chores.claim(_RETIRE, SWEEP_S, deletes=True):
            retire(self._patching)
            chores.done(_RETIRE, RETIRE_S)

    def work(self, lease: Lease) -> None:
        """Begin the job of a lease, and end it, or give it back."""
        queue, job = self._patching.queue, lease.job
        _log.info("job %s: attempt %d at %s %s", job.id, job.attempt, job.kind, job.output)
        counted = True
        try:
            with Watch(queue, lease, self._patching.limits, beat_s=self._beat_s, give_up=leave_at_once) as watch:
                self._watch = watch
                if self._leaving.is_set():
                    watch.stop(Reason.LEAVING)
                result = self._do(job, watch)
            queue.renew(lease, watch.meter)
            self._ended(queue.finish(lease, JobState.DONE, result=result))
            Attempt(self._patching, job).remove()
        except Interrupted:
            assert self._watch is not None  # which raised it
            counted = self._interrupted(lease, self._watch.reason)
        except (LeaseLostError, TryAgainError, UnavailableError) as error:
            # Another attempt may succeed; the lease may be gone as well.
            _log.warning("job %s: %s", job.id, error)
            self._leaving.wait(POLL_S * 4)
        except MaskregError as error:
            public = public_of(error)
            hint = {"hint": without_paths(public.hint)} if public.hint else {}
            self._end(lease, JobState.FAILED, {"code": public.code, "title": without_paths(public.message), **hint})
        finally:
            self._watch = None
            # Nothing is given back that has ended. What nobody expected leaves this process with its traceback.
            queue.release(lease, counted=counted)

    def _check_roles(self, job: Job) -> None:
        # The submitter may have left a project since.
        by, request = self._accounts.named(job.by), job.request
        read = [request.get("artifact"), *request.get("artifacts", ()), request.get("mask")]
        demands = [(job.project, Role.WRITER), *((Ref.parse(text).project, Role.READER) for text in read if text)]
        for project, role in demands:
            if by.role(project) < role:
                state = f"{job.by} is no longer a {role.name.lower()} of project {project}"
                raise NotAllowedError(state, hint=ROLE_HINT)

    def _do(self, job: Job, watch: Watch) -> dict[str, object]:
        self._check_roles(job)
        progress: Progress = watch
        with Workspace(self._bench.settings, note=_log.info) as space:
            registry = space.registry(self._bench.remote)
            registry.trust.signer = signer_of(self._bench.signing_key, self._bench.settings, self._bench.remote)

            def admit(digest: Digest, size: int) -> None:
                check_room(self._accounts, registry, job.project, digest, size)

            work = Work(job, self._patching, space, self._bench.remote, progress, watch.commit, admit)
            result = dict(KINDS[job.kind](work))
            if "ref" in result:
                request_first_check(self._accounts, registry, Digest(str(result["digest"])), job.by)
            return result

    def _ended(self, job: Job) -> None:
        _log.info("job %s: %s", job.id, job.state)
        self._accounts.log(Principal(job.by), f"job {job.state}", project=job.project, subject=job.id)

    def _interrupted(self, lease: Lease, reason: Reason | None) -> bool:
        """End the job, or leave it to another; whether this was an attempt."""
        _log.info("job %s: interrupted: %s", lease.job.id, reason)
        if reason is Reason.CANCELED:
            self._end(lease, JobState.CANCELED)
        elif reason is Reason.TOO_LONG:
            title = f"it took longer than {self._patching.limits.seconds:,.0f} seconds"
            self._end(lease, JobState.FAILED, {"code": "TOO_LONG", "title": title})
        return reason is not Reason.LEAVING

    def _end(self, lease: Lease, state: JobState, error: dict[str, str] | None = None) -> None:
        Attempt(self._patching, lease.job).remove()
        try:
            self._ended(self._patching.queue.finish(lease, state, error=error))
        except LeaseLostError as lost:
            _log.warning("%s", lost)


def main() -> int:
    """Work for the server that the first line of standard input describes, until that ends."""
    line = sys.stdin.readline()
    if not line:
        return 0
    bench = Bench.loads(line)
    if bench.log_format == "json":
        configure()
    patching = bench.open()
    accounts = Accounts.open(bench.url)
    worker = Worker(bench, patching, sys.argv[1], accounts=accounts)

    def leave(number: int, frame: FrameType | None) -> None:
        worker.leave()

    # Ctrl-C goes to every process of a terminal; whoever started this one says when to leave.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    threading.Thread(target=_leave_at_the_end_of_input, daemon=True).start()
    try:
        worker.run()
    finally:
        accounts.close()
        patching.queue.close()
    return 0


def _leave_at_the_end_of_input() -> None:
    # Bytes of the file itself: a buffered read would hold a lock that the interpreter wants when it ends.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

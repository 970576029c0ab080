"""Workers: each claims one job after another, and has a process of its own make the attempt.

::

    worker (a thread)     claim ── beat 1 s ── beat 1 s ── beat: "canceled by ada" ── stop ── kill
    process               apply ... apply ... apply ... commit, unless it is canceled ── rename ── finish: done

Nothing has to interrupt the work itself: a process that is to stop is killed, and what it has written is removed or
left to the next attempt. A process ends with its worker's, and a worker that cannot reach the database for as long as
its job would be given to another kills it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess

from maskreg.closing import Closing
from maskreg.errors import MaskregError, NotFoundError
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.roles import Principal
from maskreg.service.jobs.config import JobConfig
from maskreg.service.jobs.queue import LEASE_S, Claim, JobQueue
from maskreg.service.jobs.work import work
from maskreg.workspace.verbs.jobs import JobState

BEAT_S = 1.0
"""How often a worker says that it works on its job, in seconds."""

POLL_S = 0.5
"""How often an idle worker looks for a job, in seconds."""

RETRY_S = 2.0
"""How long to wait before a job is begun again whose process crashed, or found something busy, in seconds."""

SWEEP_S = 60.0
"""How often an idle worker looks for what killed attempts have left, in seconds."""

_SPAWN = multiprocessing.get_context("spawn")

_log = logging.getLogger("maskreg.jobs")


class Workers(Closing):
    """So many workers, which end with this process; a context manager."""

    def __init__(self, config: JobConfig, count: int, *, act: Callable[..., None] = work) -> None:
        self._config, self._act = config, act
        self._accounts = Accounts.open(config.url)
        self._queue = JobQueue(self._accounts.database)
        self._leaving = threading.Event()
        self._processes: set[int] = set()
        self._threads = [threading.Thread(target=self._run, name=f"worker-{n}") for n in range(count)]
        for thread in self._threads:
            thread.start()

    @property
    def pids(self) -> set[int]:
        """The processes that make attempts now."""
        return set(self._processes)

    def close(self) -> None:
        """Give every job back that is worked on, and wait until all workers have ended."""
        self._leaving.set()
        for thread in self._threads:
            thread.join()
        self._accounts.close()

    def _run(self) -> None:
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        swept = -SWEEP_S
        while not self._leaving.is_set():
            try:
                claim = self._queue.claim(name)
                if claim is not None:
                    self._attend(claim)
                    continue
                if time.monotonic() - swept > SWEEP_S:
                    self._sweep()
                    swept = time.monotonic()
            except (MaskregError, OSError) as error:
                # The database restarts, or a process cannot be started: the job is claimed again when it is silent.
                _log.warning("%s", error)
            self._leaving.wait(POLL_S)

    def _attend(self, claim: Claim) -> None:
        """Let a process make an attempt, which ends the job; give back a job that it leaves unended."""
        job = claim.job
        _log.info("job %s: attempt %d at %s %s", job.id, job.attempt, job.kind, job.output)
        process = _SPAWN.Process(target=self._act, args=(self._config, claim))
        process.start()
        assert process.pid is not None  # it was started
        self._processes.add(process.pid)
        try:
            self._watch(claim, process)
        finally:
            process.kill()
            process.join()
            self._processes.discard(process.pid)
        if self._queue.beat(claim) is not None:
            self._leaving.wait(RETRY_S)
            self._queue.release(claim, counted=not self._leaving.is_set())
            return
        state = self._queue.get(job.id).state
        _log.info("job %s: %s", job.id, state)
        if state.is_final:
            shutil.rmtree(self._config.attempts / job.id, ignore_errors=True)
            self._accounts.log(Principal(job.by), f"job {state}", project=job.project, subject=job.id)

    def _watch(self, claim: Claim, process: SpawnProcess) -> None:
        """Keep a job until its process has ended, or has to be stopped."""
        began = beaten = time.monotonic()
        while process.is_alive() and not self._leaving.is_set():
            try:
                job = self._queue.beat(claim)
                beaten = time.monotonic()
                if job is None or (job.canceled_by and self._queue.stop(claim, JobState.CANCELED)):
                    return
                if beaten - began > self._config.seconds:
                    title = f"it took longer than {self._config.seconds:,.0f} seconds"
                    if self._queue.stop(claim, JobState.FAILED, {"code": "TOO_LONG", "title": title}):
                        return
            except MaskregError as error:
                _log.warning("job %s: no heartbeat: %s", claim.job.id, error)
                if time.monotonic() - beaten > LEASE_S - 2 * BEAT_S:
                    return
            process.join(BEAT_S)

    def _sweep(self) -> None:
        """Remove what killed attempts have left at jobs that have ended since."""
        folder = self._config.attempts
        for left in folder.iterdir() if folder.is_dir() else ():
            try:
                is_over = self._queue.get(left.name).state.is_final
            except NotFoundError:
                is_over = True  # the queue was restored from a backup that is older than the job
            if is_over:
                shutil.rmtree(left, ignore_errors=True)

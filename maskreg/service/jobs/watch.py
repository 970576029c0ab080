"""The watch over one attempt: renews the lease, writes progress, and interrupts the work when it has to stop.

::

    main thread          apply ... apply ... apply ... (Interrupted is raised wherever it is; drafts are removed)
    the watch's thread   renew 1 s, renew 1 s, renew: "canceled by ada" -> signal to the main thread

The work reports progress as often as it likes; the database hears of it once a beat.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from types import FrameType, TracebackType
from typing import Self

from maskreg.errors import TryAgainError, UnavailableError
from maskreg.service.jobs.base import LEASE_S, JobLimits, JobQueue, Lease, LeaseLostError, Meter

BEAT_S = 1.0
"""How often the lease is renewed, in seconds."""

PATIENCE_S = 20.0
"""How long interrupted work may take to stop before the process ends at once, in seconds."""

_SIGNAL = signal.SIGUSR1

_log = logging.getLogger("maskreg.jobs")


class Reason(StrEnum):
    """Why an attempt has to stop."""

    CANCELED = "canceled"
    TOO_LONG = "too long"
    LOST = "lost"
    LEAVING = "leaving"


class Interrupted(KeyboardInterrupt):
    """Raised in the main thread where the work is, when it has to stop."""


class Watch:
    """Progress of one attempt, and what stops it. Used in the main thread, whose signal handler it sets.

    Attributes:
        reason: why the attempt has to stop; None while it need not.
    """

    def __init__(
        self, queue: JobQueue, lease: Lease, limits: JobLimits, *, beat_s: float = BEAT_S, give_up: Callable[[], None]
    ) -> None:
        """Watch over an attempt inside a ``with``.

        Args:
            queue: of the job.
            lease: of the job.
            limits: how long the attempt may take.
            beat_s: how often the lease is renewed, in seconds.
            give_up: called when the work does not stop though it was interrupted.
        """
        self.reason: Reason | None = None
        self._queue, self._lease, self._limits, self._beat_s, self._give_up = queue, lease, limits, beat_s, give_up
        self._meter = Meter()
        # What was reported since the last beat. A lock could be left held where the main thread is interrupted.
        self._reports: deque[Meter | int] = deque()
        self._ended = threading.Event()
        self._may_interrupt = True
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    # Progress, from any thread

    def start(self, label: str, total_bytes: int) -> None:
        """Begin a phase."""
        self._reports.append(Meter(label, 0, total_bytes))

    def advance(self, n_bytes: int) -> None:
        """Add to what the phase has done."""
        self._reports.append(n_bytes)

    @property
    def meter(self) -> Meter:
        """How far the work was when the watch ended."""
        return self._reported()

    # Stopping

    def stop(self, reason: Reason) -> None:
        """Stop the work, unless it is past the point where it can be."""
        if self.reason is not None or not self._may_interrupt:
            return
        self.reason = reason
        # A signal also ends a wait for another thread, which an exception set from outside would not.
        signal.pthread_kill(self._main, _SIGNAL)

    def commit(self) -> None:
        """Pass the point from which on the work is no longer interrupted, with the lease renewed once more.

        Raises:
            Interrupted: it has to stop, and no signal came in time.
            LeaseLostError: the job was given to another worker.
        """
        job = self._queue.renew(self._lease)
        self._may_interrupt = False
        if job.canceled_by and self.reason is None:
            self.reason = Reason.CANCELED
        if self.reason is not None:
            raise Interrupted

    def __enter__(self) -> Self:
        self._before = signal.signal(_SIGNAL, self._interrupt)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._may_interrupt = False
        self._ended.set()
        self._thread.join()
        signal.signal(_SIGNAL, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        # Once: cleaning up afterwards is not interrupted.
        if self._may_interrupt:
            self._may_interrupt = False
            raise Interrupted

    def _reported(self) -> Meter:
        while self._reports:
            report = self._reports.popleft()
            done = report if isinstance(report, int) else 0
            meter = self._meter if isinstance(report, int) else report
            self._meter = Meter(meter.phase, meter.done + done, meter.total)
        return self._meter

    def _run(self) -> None:
        began = renewed = time.monotonic()
        stopped = 0.0
        while not self._ended.wait(self._beat_s):
            now = time.monotonic()
            try:
                job = self._queue.renew(self._lease, self._reported())
                renewed = now
                if job.canceled_by:
                    self.stop(Reason.CANCELED)
            except LeaseLostError:
                self.stop(Reason.LOST)
            except (TryAgainError, UnavailableError) as error:
                _log.warning("job %s: the lease was not renewed: %s", self._lease.job.id, error)
            if now - renewed > LEASE_S:
                self.stop(Reason.LOST)
            if now - began > self._limits.seconds:
                self.stop(Reason.TOO_LONG)
            if self.reason is None:
                continue
            stopped = stopped or now
            if now - stopped > PATIENCE_S:
                _log.error("job %s does not stop; its process ends", self._lease.job.id)
                self._give_up()


def leave_at_once() -> None:
    """End this process as if it had been killed: its drafts stay, and are removed by the next attempt or sweep."""
    os._exit(70)

"""The contract of a queue of jobs.

A job ends exactly once, whatever is killed on the way::

    submit ──> queued ──claim──> running ──finish──> done | failed | canceled
                 ^                  │
                 └── release, or ───┘      the lease ran out: its worker was killed, and the next claim takes the job
                     lease over            again, as another attempt, up to a limit

Whoever claims a job holds a lease on it, and has to renew that all the time. What a worker writes with a lease that it
has lost is refused: two workers never both end a job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from maskreg.errors import TryAgainError
from maskreg.result import plain

REMOVED = "removed"
"""The key of a result that says since when what the job wrote is not there any more."""

LEASE_S = 15.0
"""How long a worker may be silent before its job is given to another, in seconds."""


PAGE = 500
"""Jobs that are read at a time where all are needed."""


class JobState(StrEnum):
    """Where a job is on its way."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_final(self) -> bool:
        """Whether nothing happens to the job any more."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


OUTPUT_STATES = (JobState.QUEUED, JobState.RUNNING, JobState.DONE)
"""States of jobs that have an output, or may still write it."""


class LeaseLostError(TryAgainError):
    """A job that was given to another worker, because this one did not renew its lease in time."""

    code = "LEASE_LOST"


class QueueFullError(TryAgainError):
    """As many jobs of a project wait as may."""

    code = "QUEUE_FULL"


@dataclass(frozen=True)
class JobLimits:
    """How much a server does at the same time, and for how long.

    Attributes:
        running: jobs at the same time, over all workers.
        running_per_project: jobs of one project at the same time.
        queued_per_project: jobs of one project that wait.
        seconds: how long an attempt may take.
        attempts: how often a job is begun whose worker was killed, or crashed.
        max_bytes: the most that a checkpoint may have which a job writes; 0 for any size.
        max_bytes_per_project: the most that the checkpoints of a project may have together; 0 for any size.
        keep_outputs_s: how long a checkpoint is kept after its job is done, in seconds; 0 for ever.
        keep_jobs_s: how long a job is kept after it has ended, in seconds; 0 for ever.
    """

    running: int = 4
    running_per_project: int = 2
    queued_per_project: int = 20
    seconds: float = 6 * 3600.0
    attempts: int = 3
    max_bytes: int = 0
    max_bytes_per_project: int = 0
    keep_outputs_s: float = 30 * 86_400.0
    keep_jobs_s: float = 90 * 86_400.0


@dataclass(frozen=True)
class Meter:
    """How far a job is.

    Attributes:
        phase: what it does, in the imperative; empty before it begins.
        done: bytes of the phase that are done.
        total: bytes of the phase.
    """

    phase: str = ""
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class NewJob:
    """A job that is about to be submitted.

    Attributes:
        kind: what it does, such as ``apply``.
        project: whose quota it uses, and who may see it.
        by: name of the principal who submits it.
        output: what it makes; no two jobs that have not ended make the same.
        request: what exactly to do; a JSON object.
    """

    kind: str
    project: str
    by: str
    output: str
    request: Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """A job, as it is now.

    Attributes:
        id: names it; cannot be guessed.
        number: in the order of submission.
        kind: what it does.
        project: whose quota it uses, and who may see it.
        by: who submitted it.
        output: what it makes.
        request: what exactly to do.
        state: where it is on its way.
        meter: how far it is.
        attempt: how often it was begun.
        created: when it was submitted.
        started: when the latest attempt began; None before the first.
        finished: when it ended; None while it has not.
        canceled_by: who wants it to stop; empty when nobody does.
        result: what it made; None unless it is done.
        error: why it failed, as a problem has it; None unless it failed.
        revision: rises whenever anything changes.
    """

    id: str
    number: int
    kind: str
    project: str
    by: str
    output: str
    request: Mapping[str, Any]
    state: JobState
    meter: Meter
    attempt: int
    created: datetime
    started: datetime | None
    finished: datetime | None
    canceled_by: str
    result: Mapping[str, Any] | None
    error: Mapping[str, Any] | None
    revision: int

    def to_json(self) -> dict[str, object]:
        """What the API answers."""
        fields = {name: plain(value) for name, value in vars(self).items() if name != "meter"}
        return {**fields, "progress": plain(self.meter)}


@dataclass(frozen=True)
class Lease:
    """The right to work on a job, as long as it is renewed.

    Attributes:
        job: as it was when it was claimed.
        worker: who holds it.
    """

    job: Job
    worker: str


@dataclass(frozen=True)
class JobFilter:
    """Which jobs to list.

    Attributes:
        projects: of these projects; None for all.
        states: in these states; empty for all.
        before: submitted before the job with this number; None from the newest.
        limit: at most this many.
        hidden: not of these projects.
        after: submitted after the job with this number.
        makes: of this kind, with this output; None for all.
    """

    projects: Collection[str] | None = None
    states: Collection[JobState] = field(default=())
    before: int | None = None
    limit: int = 50
    hidden: Collection[str] = ()
    after: int = 0
    makes: tuple[str, str] | None = None


class JobQueue(Protocol):
    """A durable queue. Safe to use from many threads, processes and machines.

    Every method raises ``TryAgainError`` when a lock is held for too long, and ``UnavailableError`` when the database
    does not answer.
    """

    def submit(self, new: NewJob, limits: JobLimits) -> Job:
        """Put a job at the end of the queue.

        Raises:
            ConflictError: a job that has not ended makes the same.
            QueueFullError: too many jobs of the project wait.
        """

    def get(self, id: str) -> Job:
        """A job.

        Raises:
            NotFoundError: there is no such job.
        """

    def list(self, which: JobFilter) -> list[Job]:
        """Jobs, the newest first."""

    def cancel(self, id: str, by: str) -> Job:
        """Stop a job: at once while it waits, soon when it runs. One that was canceled stays so.

        Raises:
            NotFoundError: there is no such job.
            ConflictError: it is done, or has failed.
        """

    def claim(self, worker: str, limits: JobLimits) -> Lease | None:
        """Take the oldest job that may begin; None when there is none.

        A job whose lease ran out is taken again, or ends here: as canceled where somebody wanted that, as failed where
        it was begun too often.

        Args:
            worker: who takes it; unique among all workers.
            limits: how many may run at the same time.
        """

    def renew(self, lease: Lease, meter: Meter | None = None) -> Job:
        """Keep a job, and say how far it is.

        Raises:
            LeaseLostError: it was given to another worker, or has ended.
        """

    def release(self, lease: Lease, *, counted: bool) -> None:
        """Give a job back, to be begun again; do nothing when the lease was lost.

        Args:
            lease: of the job.
            counted: whether this was an attempt; False where the worker had to leave.
        """

    def finish(
        self,
        lease: Lease,
        state: JobState,
        *,
        result: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> Job:
        """End a job.

        Raises:
            LeaseLostError: it was given to another worker, or has ended.
        """

    def abandon(self, worker: str) -> None:
        """Give back what a worker held that is known to be dead."""

    # For retention

    def ended(self, before_s: float, *, after: int = 0, limit: int = 500) -> Sequence[Job]:
        """Jobs that have ended some time ago, in the order of submission.

        Args:
            before_s: how long ago at least, in seconds.
            after: submitted after the job with this number.
            limit: at most this many.
        """

    def note_removed(self, id: str) -> None:
        """Say in the result of a job that is done that what it wrote is removed."""

    def forget(self, id: str) -> None:
        """Delete a job that has ended; do nothing when it has not, or is not there."""

    def close(self) -> None:
        """Close every connection."""


def all_jobs(queue: JobQueue, which: JobFilter) -> Iterator[Job]:
    """Every job, the newest first, however many there are.

    Args:
        queue: the jobs.
        which: of these; the limit does not matter.

    Raises:
        TryAgainError, UnavailableError: as every method of a queue.
    """
    which = replace(which, limit=PAGE)
    while page := queue.list(which):
        yield from page
        which = replace(which, before=page[-1].number)

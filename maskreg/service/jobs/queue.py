"""The queue: one table, in which every job ends once, whatever is killed on the way.

::

    submit ──> queued ──claim──> running ──finish──> done | failed | canceled
                 ^                  │
                 └── release, or ───┘      no heartbeat for LEASE_S: the worker was killed, and the next claim takes
                     silence               the job as another attempt, up to a limit

Writers of the database follow one another, so that counts of what waits and runs hold. A worker writes only under the
condition that the attempt is still its own: one that was silent for too long never ends a job that another worker has.
"""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, delete, func, insert, not_, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from maskreg.catalog.engine import now
from maskreg.errors import ConflictError, NotFoundError, RateLimitedError, WorkerError
from maskreg.service.auth.database import Database, JobRow

LEASE_S = 15.0
"""How long a worker may be silent before its job is given to another, in seconds."""

KEEP_S = 90 * 86_400.0
"""How long a job is kept after its end, in seconds."""


class JobState(StrEnum):
    """Where a job is on its way."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class QueueFullError(RateLimitedError):
    """Too many jobs of a project wait."""

    code = "QUEUE_FULL"

    def __init__(self, project: str, waiting: int) -> None:
        super().__init__(1, hint="try again when one has ended")
        self.message = f"{waiting} jobs of project {project} wait already, which is the limit"


@dataclass(frozen=True)
class JobLimits:
    """How much a server does at the same time, and for how long.

    Attributes:
        attempts: how often a job is begun whose worker is killed, or crashes.
        bytes_per_project: the most that the checkpoints of a project can have together; 0 for any size.
    """

    running: int = 4
    running_per_project: int = 2
    waiting_per_project: int = 20
    seconds: float = 6 * 3600.0
    attempts: int = 3
    bytes_per_project: int = 0


@dataclass(frozen=True)
class Meter:
    """How far a job is.

    Attributes:
        phase: what it does, in the imperative; empty before it begins.
    """

    phase: str = ""
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class NewJob:
    """A job that is about to be submitted.

    Attributes:
        project: whose quota it uses, and whose members see it.
        output: what it makes; no two jobs that have not ended make the same.
    """

    kind: str
    project: str
    by: str
    output: str
    request: dict[str, Any]


@dataclass(frozen=True)
class Job(NewJob):
    """A job as it is now.

    Attributes:
        attempt: how often it was begun.
        canceled_by: who stopped it, or wants it to stop; empty otherwise.
        error: ``code``, ``title`` and perhaps ``hint``; None unless it failed.
    """

    id: str
    number: int
    state: JobState
    progress: Meter
    attempt: int
    created: datetime
    started: datetime | None
    finished: datetime | None
    canceled_by: str
    result: dict[str, Any] | None
    error: dict[str, Any] | None


@dataclass(frozen=True)
class Claim:
    """A worker's right to an attempt at a job, for as long as its heart beats."""

    job: Job
    worker: str

    @property
    def holds(self) -> ColumnElement[bool]:
        """The condition under which the worker writes."""
        return and_(
            JobRow.id == self.job.id,
            JobRow.state == JobState.RUNNING,
            JobRow.worker == self.worker,
            JobRow.attempt == self.job.attempt,
        )


class JobQueue:
    """The table of jobs in a database. Safe to use from many threads, processes and machines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def submit(self, new: NewJob, limits: JobLimits) -> Job:
        """Put a job at the end of the queue; a second one with its output, and one too many, are refused."""
        with self._database.write() as connection:
            at = now(connection)
            connection.execute(delete(JobRow).where(JobRow.finished < at - KEEP_S))
            own = JobRow.project == new.project
            live = JobRow.state.in_([JobState.QUEUED, JobState.RUNNING])
            same = select(JobRow.id).where(own, live, JobRow.kind == new.kind, JobRow.output == new.output)
            if twin := connection.execute(same).scalar():
                raise ConflictError(
                    f"job {twin} makes {new.output} already", hint="follow it, cancel it, or choose another output"
                )
            if _count(connection, own, JobRow.state == JobState.QUEUED) >= limits.waiting_per_project:
                raise QueueFullError(new.project, limits.waiting_per_project)
            values = {**vars(new), "id": secrets.token_hex(8), "state": JobState.QUEUED, "created": at}
            connection.execute(insert(JobRow).values(values | _UNTOUCHED | {"attempt": 0, "canceled_by": ""}))
            return _job_with(connection, values["id"])

    def get(self, id: str) -> Job:
        """A job."""
        with self._database.read() as connection:
            return _job_with(connection, id)

    def list(
        self,
        *,
        projects: Collection[str] | None = None,
        hidden: Collection[str] = (),
        states: Collection[JobState] = (),
        before: int | None = None,
        limit: int = 50,
    ) -> builtins.list[Job]:
        """Jobs of these projects (None for all) but the hidden ones, the newest first; ``before`` is a number."""
        rows = select(JobRow.__table__).where(JobRow.project.not_in(hidden))
        if projects is not None:
            rows = rows.where(JobRow.project.in_(projects))
        if states:
            rows = rows.where(JobRow.state.in_(states))
        if before is not None:
            rows = rows.where(JobRow.number < before)
        with self._database.read() as connection:
            newest = rows.order_by(JobRow.number.desc()).limit(limit)
            return [_job_of(row) for row in connection.execute(newest).mappings()]

    def cancel(self, id: str, by: str) -> Job:
        """Stop a job: at once while it waits, within seconds when it runs. A canceled job stays as it is."""
        with self._database.write() as connection:
            wanted = update(JobRow).where(JobRow.id == id, JobRow.canceled_by == "")
            ended = {"state": JobState.CANCELED, "canceled_by": by, "finished": now(connection)}
            connection.execute(wanted.where(JobRow.state == JobState.QUEUED).values(ended))
            connection.execute(wanted.where(JobRow.state == JobState.RUNNING).values(canceled_by=by))
            job = _job_with(connection, id)
        if job.state in (JobState.DONE, JobState.FAILED):
            raise ConflictError(f"job {id} is {job.state} already")
        return job

    # For workers

    def claim(self, worker: str, limits: JobLimits) -> Claim | None:
        """Take the oldest job that can begin, for a worker whose name is unique; None when there is none."""
        with self._database.read() as connection:
            # Idle workers look without a lock.
            if not _count(connection, _free(now(connection))):
                return None
        with self._database.write() as connection:
            at = now(connection)
            self._end_hopeless(connection, at, limits)
            running = and_(JobRow.state == JobState.RUNNING, not_(_free(at)))
            if _count(connection, running) >= limits.running:
                return None
            full = select(JobRow.project).where(running).group_by(JobRow.project)
            full = full.having(func.count() >= limits.running_per_project)
            oldest = select(JobRow.id).where(_free(at), JobRow.project.not_in(full)).order_by(JobRow.number).limit(1)
            id = connection.execute(oldest).scalar()
            if id is None:
                return None
            begun = {"state": JobState.RUNNING, "started": at, "attempt": JobRow.attempt + 1}
            taken = update(JobRow).where(JobRow.id == id)
            connection.execute(taken.values(_UNTOUCHED | begun | {"worker": worker, "beat": at}))
            return Claim(_job_with(connection, id), worker)

    def _end_hopeless(self, connection: Connection, at: float, limits: JobLimits) -> None:
        canceled = update(JobRow).where(_free(at), JobRow.canceled_by != "")
        connection.execute(canceled.values(state=JobState.CANCELED, finished=at))
        error = {
            "code": WorkerError.code,
            "title": f"its worker was killed or crashed {limits.attempts} times",
            "hint": "the server's log says more",
        }
        worn = update(JobRow).where(_free(at), JobRow.attempt >= limits.attempts)
        connection.execute(worn.values(state=JobState.FAILED, error=error, finished=at))

    def beat(self, claim: Claim, meter: Meter) -> Job | None:
        """Keep a job, and say how far it is; None when it is another worker's by now, or has ended."""
        with self._database.write() as connection:
            values = {"beat": now(connection), "phase": meter.phase, "done": meter.done, "total": meter.total}
            kept = connection.execute(update(JobRow).where(claim.holds).values(values)).rowcount
            return _job_with(connection, claim.job.id) if kept else None

    def release(self, claim: Claim, *, counted: bool) -> None:
        """Give a job back, to be begun again; this was an attempt where it is counted. A lost claim is ignored."""
        values = _UNTOUCHED | {"state": JobState.QUEUED, "attempt": claim.job.attempt - (not counted)}
        with self._database.write() as connection:
            connection.execute(update(JobRow).where(claim.holds).values(values))

    def finish(
        self,
        claim: Claim,
        state: JobState,
        *,
        result: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> bool:
        """End a job; whether it was still this worker's."""
        with self._database.write() as connection:
            values = {"state": state, "finished": now(connection), "result": result, "error": error}
            return bool(connection.execute(update(JobRow).where(claim.holds).values(values)).rowcount)


_UNTOUCHED: dict[str, Any] = {"worker": "", "beat": 0.0, "phase": "", "done": 0, "total": 0}


def _free(at: float) -> ColumnElement[bool]:
    # A heartbeat from the future was written before the clock was set back.
    silent = or_(JobRow.beat < at - LEASE_S, JobRow.beat > at + LEASE_S)
    return or_(JobRow.state == JobState.QUEUED, and_(JobRow.state == JobState.RUNNING, silent))


def _count(connection: Connection, *conditions: ColumnElement[bool]) -> int:
    return connection.execute(select(func.count()).select_from(JobRow).where(*conditions)).scalar_one()


def _job_with(connection: Connection, id: str) -> Job:
    row = connection.execute(select(JobRow.__table__).where(JobRow.id == id)).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"there is no job {id}")
    return _job_of(row)


def _job_of(row: RowMapping) -> Job:
    values = {name: row[name] for name in Job.__dataclass_fields__ if name in row}
    for name in ("created", "started", "finished"):
        values[name] = None if row[name] is None else datetime.fromtimestamp(row[name], UTC)
    meter = Meter(row["phase"], row["done"], row["total"])
    return Job(**{**values, "state": JobState(row["state"]), "progress": meter})

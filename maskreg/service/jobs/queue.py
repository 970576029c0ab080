"""The queue: one table, in which every job ends once, even if processes are killed on the way.

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
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, delete, func, insert, not_, or_, select, update
from sqlalchemy.orm import aliased
from sqlalchemy.sql.elements import ColumnElement

from maskreg.catalog.engine import now
from maskreg.errors import ConflictError, NotFoundError, RateLimitedError, WorkerError
from maskreg.service.auth.database import Database, JobRow
from maskreg.workspace.verbs.jobs import Job, JobProgress, JobState

LEASE_S = 15.0
"""How long a worker can be silent before its job is given to another, in seconds."""

KEEP_S = 90 * 86_400.0
"""How long a job is kept after its end, in seconds."""

ATTEMPTS = 3
"""How often a job is begun whose worker is killed, or crashes."""

MOST_WAITING = 20
"""Jobs of a project that can wait."""

COMMITTED = "publish"
"""The phase of a job that can no longer be canceled."""


class QueueFullError(RateLimitedError):
    """Too many jobs of a project wait."""

    code = "QUEUE_FULL"

    def __init__(self, project: str, waiting: int) -> None:
        super().__init__(1, hint="try again when one has ended")
        self.message = f"{waiting} jobs of project {project} wait already, which is the limit"


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
        self.database = database

    def submit(self, new: NewJob) -> Job:
        """Put a job at the end of the queue; a second one with its output, and one too many, are refused."""
        with self.database.write() as connection:
            at = now(connection)
            connection.execute(delete(JobRow).where(JobRow.finished < at - KEEP_S))
            own = JobRow.project == new.project
            live = JobRow.state.in_([JobState.QUEUED, JobState.RUNNING])
            same = select(JobRow.id).where(own, live, JobRow.kind == new.kind, JobRow.output == new.output)
            if twin := connection.execute(same).scalar():
                raise ConflictError(
                    f"job {twin} makes {new.output} already", hint="wait for it, cancel it, or choose another output"
                )
            if _count(connection, own, JobRow.state == JobState.QUEUED) >= MOST_WAITING:
                raise QueueFullError(new.project, MOST_WAITING)
            values = {**vars(new), "id": secrets.token_hex(8), "state": JobState.QUEUED, "created": at}
            connection.execute(
                insert(JobRow).values(values | _UNTOUCHED | {"attempt": 0, "canceled_by": "", "log": ""})
            )
            return _job_with(connection, values["id"])

    def get(self, id: str) -> Job:
        """A job."""
        with self.database.read() as connection:
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
        with self.database.read() as connection:
            newest = rows.order_by(JobRow.number.desc()).limit(limit)
            return [_job_of(row) for row in connection.execute(newest).mappings()]

    def cancel(self, id: str, by: str) -> Job:
        """Stop a job: at once while it waits, within seconds when it runs. A canceled job stays as it is.

        Raises:
            ConflictError: it has ended, or its result is being made visible.
        """
        with self.database.write() as connection:
            wanted = update(JobRow).where(JobRow.id == id, JobRow.canceled_by == "")
            ended = {"state": JobState.CANCELED, "canceled_by": by, "finished": now(connection)}
            connection.execute(wanted.where(JobRow.state == JobState.QUEUED).values(ended))
            running = wanted.where(JobRow.state == JobState.RUNNING, JobRow.phase != COMMITTED)
            connection.execute(running.values(canceled_by=by))
            job = _job_with(connection, id)
        if job.state in (JobState.DONE, JobState.FAILED):
            raise ConflictError(f"job {id} is {job.state} already")
        if not job.canceled_by:
            raise ConflictError(f"job {id} is making its result visible, and ends soon")
        return job

    # For workers

    def claim(self, worker: str) -> Claim | None:
        """Take a job for a worker whose name is unique; None when none waits.

        The oldest job goes first, of the project that has the fewest running.
        """
        with self.database.read() as connection:
            # Idle workers look without a lock.
            if not _count(connection, _free(JobRow, now(connection))):
                return None
        with self.database.write() as connection:
            at = now(connection)
            self._end_hopeless(connection, at)
            other = aliased(JobRow)
            is_running = and_(other.state == JobState.RUNNING, not_(_free(other, at)))
            running = select(func.count()).where(other.project == JobRow.project, is_running).scalar_subquery()
            oldest = select(JobRow.id).where(_free(JobRow, at)).order_by(running, JobRow.number).limit(1)
            id = connection.execute(oldest).scalar()
            if id is None:
                return None
            begun = {"state": JobState.RUNNING, "started": at, "attempt": JobRow.attempt + 1}
            taken = update(JobRow).where(JobRow.id == id)
            connection.execute(taken.values(_UNTOUCHED | begun | {"worker": worker, "beat": at}))
            return Claim(_job_with(connection, id), worker)

    def _end_hopeless(self, connection: Connection, at: float) -> None:
        free = _free(JobRow, at)
        canceled = update(JobRow).where(free, JobRow.canceled_by != "")
        connection.execute(canceled.values(state=JobState.CANCELED, finished=at))
        error = {
            "code": WorkerError.code,
            "title": f"its worker was killed or crashed {ATTEMPTS} times",
            "hint": "the server's log says more",
        }
        worn = update(JobRow).where(free, JobRow.attempt >= ATTEMPTS)
        connection.execute(worn.values(state=JobState.FAILED, error=error, finished=at))

    def beat(self, claim: Claim) -> Job | None:
        """Keep a job; None when it is another worker's by now, or has ended."""
        with self.database.write() as connection:
            kept = connection.execute(update(JobRow).where(claim.holds).values(beat=now(connection))).rowcount
            return _job_with(connection, claim.job.id) if kept else None

    def report(self, claim: Claim, progress: JobProgress, log: Collection[str]) -> None:
        """Write how far a job is, and the last lines of its log; a lost claim is ignored."""
        self._change(claim, **vars(progress), log="\n".join(log))

    def commit(self, claim: Claim) -> bool:
        """Begin to make the result visible, from when on the job cannot be canceled; False where it was before."""
        return self._change(claim, JobRow.canceled_by == "", phase=COMMITTED)

    def release(self, claim: Claim, *, counted: bool) -> None:
        """Give a job back, to be begun again; this was an attempt where it is counted. A lost claim is ignored."""
        attempt = claim.job.attempt - (not counted)
        self._change(claim, **_UNTOUCHED, state=JobState.QUEUED, attempt=attempt)

    def finish(
        self,
        claim: Claim,
        state: JobState,
        *,
        result: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> bool:
        """End a job; whether it was still this worker's."""
        return self._change(claim, state=state, result=result, error=error)

    def stop(self, claim: Claim, state: JobState, error: Mapping[str, Any] | None = None) -> bool:
        """End a job that has not begun to make its result visible; whether it was ended."""
        return self._change(claim, JobRow.phase != COMMITTED, state=state, error=error)

    def _change(self, claim: Claim, *conditions: ColumnElement[bool], **values: Any) -> bool:
        with self.database.write() as connection:
            if (state := values.get("state")) is not None and state.is_final:
                values["finished"] = now(connection)
            return bool(connection.execute(update(JobRow).where(claim.holds, *conditions).values(values)).rowcount)


_UNTOUCHED: dict[str, Any] = {"worker": "", "beat": 0.0, "phase": "", "done": 0, "total": 0}


def _free(row: type[JobRow], at: float) -> ColumnElement[bool]:
    # A heartbeat from the future was written before the clock was set back.
    silent = or_(row.beat < at - LEASE_S, row.beat > at + LEASE_S)
    return or_(row.state == JobState.QUEUED, and_(row.state == JobState.RUNNING, silent))


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
    progress = JobProgress(row["phase"], row["done"], row["total"])
    log = tuple(row["log"].splitlines())
    return Job(**{**values, "state": JobState(row["state"]), "progress": progress, "log": log})

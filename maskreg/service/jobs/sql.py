"""The queue in SQLite or PostgreSQL, through SQLAlchemy."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    RowMapping,
    Select,
    and_,
    delete,
    func,
    insert,
    not_,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from maskreg.catalog.sql.address import Address, parse_address
from maskreg.catalog.sql.clock import MAX_SKEW_S, now
from maskreg.catalog.sql.engine import WRITE, make_engine
from maskreg.catalog.sql.faults import translated
from maskreg.catalog.sql.schema import bring_up_own, installed
from maskreg.errors import ConflictError, NotFoundError, WorkerError
from maskreg.service.jobs.base import (
    LEASE_S,
    REMOVED,
    Job,
    JobFilter,
    JobLimits,
    JobState,
    Lease,
    LeaseLostError,
    Meter,
    NewJob,
    QueueFullError,
)
from maskreg.service.jobs.models import JobRow
from maskreg.service.jobs.schema import JOBS

_LOCK_KEY = 0x6D61736B72656A6F
_LIVE = JobRow.state.in_([JobState.QUEUED, JobState.RUNNING])
_COLUMNS = JobRow.__table__


class SqlJobQueue:
    """A :class:`~maskreg.service.jobs.base.JobQueue` in a database.

    Claiming and submitting count what runs and waits, so they follow one another: on SQLite by ``BEGIN IMMEDIATE``,
    on PostgreSQL by an advisory lock. Everything else changes one row, under the condition that the lease still holds::

        worker A   claim ............... (stopped, 20 s) ... renew: no row has its attempt number any more -> lease lost
        worker B                    claim: lease_until < now -> attempt 2 ... renew ... finish
    """

    def __init__(self, address: Address, engine: Engine, *, lease_s: float = LEASE_S) -> None:
        """Use a database that has the table already.

        Args:
            address: of the database, for messages.
            engine: its connections; closed with the queue.
            lease_s: how long a worker may be silent, in seconds.
        """
        self._address = address
        self._engine = engine
        self._writing = engine.execution_options(**{WRITE: True})
        self._lease_s = lease_s
        self._close = weakref.finalize(self, engine.dispose)

    @classmethod
    def open(cls, url: str, *, lease_s: float = LEASE_S) -> SqlJobQueue:
        """Open the queue of a database; a SQLite file that has none yet gets its table.

        Args:
            url: ``sqlite:///PATH`` or ``postgresql+psycopg://USER@HOST/DATABASE``.
            lease_s: how long a worker may be silent, in seconds.

        Raises:
            ConfigError: its schema is of another version, or PostgreSQL has none yet.
            CorruptError: the SQLite file is damaged.
            NotAllowedError: the server refused the credentials.
            UnavailableError: the server does not answer.
        """
        address = parse_address(url)
        queue = cls(address, make_engine(address), lease_s=lease_s)
        try:
            with queue._transaction(queue._engine) as connection:
                revision = installed(connection, JOBS)
            bring_up_own(address, queue._engine, revision, JOBS)
        except BaseException:
            queue.close()
            raise
        return queue

    def close(self) -> None:
        """Close every connection."""
        self._close()

    # For those who submit

    def submit(self, new: NewJob, limits: JobLimits) -> Job:
        """As the contract says."""
        with self._alone() as connection:
            own = and_(_LIVE, JobRow.project == new.project)
            same = select(JobRow.id).where(own, JobRow.kind == new.kind, JobRow.output == new.output)
            if twin := connection.execute(same).scalar():
                raise ConflictError(
                    f"job {twin} makes {new.output} already", hint="follow it, cancel it, or choose another output"
                )
            waiting = select(func.count()).where(JobRow.project == new.project, JobRow.state == JobState.QUEUED)
            if connection.execute(waiting).scalar_one() >= limits.queued_per_project:
                raise QueueFullError(
                    f"{limits.queued_per_project} jobs of project {new.project} wait already, and no more may",
                    hint="try again when one has ended",
                )
            values = {
                "id": secrets.token_hex(8),
                "kind": new.kind,
                "project": new.project,
                "by": new.by,
                "output": new.output,
                "request": dict(new.request),
                "state": JobState.QUEUED,
                "phase": "",
                "done": 0,
                "total": 0,
                "attempt": 0,
                "canceled_by": "",
                "worker": "",
                "created": now(connection),
                "lease_until": 0.0,
                "revision": 1,
            }
            connection.execute(insert(JobRow).values(values))
            return _required(connection, JobRow.id == values["id"])

    def get(self, id: str) -> Job:
        """As the contract says."""
        with self._transaction(self._engine) as connection:
            return _job_with(connection, id)

    def list(self, which: JobFilter) -> list[Job]:
        """As the contract says."""
        rows = select(_COLUMNS).order_by(JobRow.number.desc()).limit(which.limit)
        if which.projects is not None:
            rows = rows.where(JobRow.project.in_(which.projects))
        if which.hidden:
            rows = rows.where(JobRow.project.not_in(which.hidden))
        if which.states:
            rows = rows.where(JobRow.state.in_(which.states))
        if which.before is not None:
            rows = rows.where(JobRow.number < which.before)
        if which.after:
            rows = rows.where(JobRow.number > which.after)
        if which.makes is not None:
            kind, output = which.makes
            rows = rows.where(JobRow.kind == kind, JobRow.output == output)
        with self._transaction(self._engine) as connection:
            return [_job_of(row) for row in connection.execute(rows).mappings()]

    def cancel(self, id: str, by: str) -> Job:
        """As the contract says."""
        with self._transaction(self._writing) as connection:
            at = now(connection)
            ended = {"state": JobState.CANCELED, "canceled_by": by, "finished": at, **_bump()}
            queued = and_(JobRow.id == id, JobRow.state == JobState.QUEUED)
            if not connection.execute(update(JobRow).where(queued).values(ended)).rowcount:
                running = and_(JobRow.id == id, JobRow.state == JobState.RUNNING, JobRow.canceled_by == "")
                connection.execute(update(JobRow).where(running).values(canceled_by=by, **_bump()))
            job = _job_with(connection, id)
        if job.state in (JobState.DONE, JobState.FAILED):
            raise ConflictError(f"job {id} is {job.state} already")
        return job

    # For workers

    def claim(self, worker: str, limits: JobLimits) -> Lease | None:
        """As the contract says."""
        with self._transaction(self._engine) as connection:
            # Most of the time there is nothing to do, and nobody has to wait for that to be found out.
            if connection.execute(select(JobRow.id).where(self._claimable(now(connection))).limit(1)).scalar() is None:
                return None
        with self._alone() as connection:
            at = now(connection)
            self._end_hopeless(connection, at, limits)
            held = and_(JobRow.state == JobState.RUNNING, not_(self._is_over(at)))
            if connection.execute(select(func.count()).where(held)).scalar_one() >= limits.running:
                return None
            full = select(JobRow.project).where(held).group_by(JobRow.project)
            full = full.having(func.count() >= limits.running_per_project)
            ready = select(JobRow.number).where(self._claimable(at), JobRow.project.not_in(full))
            number = connection.execute(ready.order_by(JobRow.number).limit(1)).scalar()
            if number is None:
                return None
            values = {
                "state": JobState.RUNNING,
                "worker": worker,
                "lease_until": at + self._lease_s,
                "started": at,
                "attempt": JobRow.attempt + 1,
                "phase": "",
                "done": 0,
                "total": 0,
                **_bump(),
            }
            # A renewal takes no lock that claims take, so the condition is checked once more.
            mine = and_(JobRow.number == number, self._claimable(at))
            if not connection.execute(update(JobRow).where(mine).values(values)).rowcount:
                return None
            return Lease(_required(connection, JobRow.number == number), worker)

    def _end_hopeless(self, connection: Connection, at: float, limits: JobLimits) -> None:
        lost = and_(JobRow.state == JobState.RUNNING, self._is_over(at))
        ended = {"finished": at, "worker": "", "lease_until": 0.0, **_bump()}
        canceled = and_(self._claimable(at), JobRow.canceled_by != "")
        connection.execute(update(JobRow).where(canceled).values(state=JobState.CANCELED, **ended))
        worn = and_(or_(lost, JobRow.state == JobState.QUEUED), JobRow.attempt >= limits.attempts)
        error = {
            "code": WorkerError.code,
            "title": f"its worker was killed or crashed {limits.attempts} times",
            "hint": "the server's log says more",
        }
        connection.execute(update(JobRow).where(worn).values(state=JobState.FAILED, error=error, **ended))

    def renew(self, lease: Lease, meter: Meter | None = None) -> Job:
        """As the contract says."""
        with self._transaction(self._writing) as connection:
            values: dict[str, Any] = {"lease_until": now(connection) + self._lease_s}
            if meter is not None and meter != lease.job.meter:
                values |= {"phase": meter.phase, "done": meter.done, "total": meter.total, **_bump()}
            self._change(connection, lease, values)
            return _required(connection, JobRow.id == lease.job.id)

    def release(self, lease: Lease, *, counted: bool) -> None:
        """As the contract says."""
        with self._transaction(self._writing) as connection:
            connection.execute(update(JobRow).where(_held(lease)).values(_waiting(counted)))

    def finish(
        self,
        lease: Lease,
        state: JobState,
        *,
        result: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> Job:
        """As the contract says."""
        with self._transaction(self._writing) as connection:
            values = {
                "state": state,
                "finished": now(connection),
                "worker": "",
                "lease_until": 0.0,
                "result": None if result is None else dict(result),
                "error": None if error is None else dict(error),
            }
            self._change(connection, lease, {**values, **_bump()})
            return _required(connection, JobRow.id == lease.job.id)

    def abandon(self, worker: str) -> None:
        """As the contract says."""
        held = and_(JobRow.worker == worker, JobRow.state == JobState.RUNNING)
        with self._transaction(self._writing) as connection:
            connection.execute(update(JobRow).where(held).values(_waiting(counted=True)))

    # For retention

    def ended(self, before_s: float, *, after: int = 0, limit: int = 500) -> Sequence[Job]:
        """As the contract says."""
        with self._transaction(self._engine) as connection:
            old = and_(JobRow.finished <= now(connection) - before_s, not_(_LIVE), JobRow.number > after)
            rows = select(_COLUMNS).where(old).order_by(JobRow.number).limit(limit)
            return [_job_of(row) for row in connection.execute(rows).mappings()]

    def note_removed(self, id: str) -> None:
        """As the contract says."""
        with self._transaction(self._writing) as connection:
            job = _job_with(connection, id)
            if job.state is JobState.DONE:
                removed = {**(job.result or {}), REMOVED: _moment(now(connection)).isoformat()}
                connection.execute(update(JobRow).where(JobRow.id == id).values(result=removed, **_bump()))

    def forget(self, id: str) -> None:
        """As the contract says."""
        with self._transaction(self._writing) as connection:
            connection.execute(delete(JobRow).where(JobRow.id == id, not_(_LIVE)))

    def _change(self, connection: Connection, lease: Lease, values: Mapping[str, Any]) -> None:
        if not connection.execute(update(JobRow).where(_held(lease)).values(**values)).rowcount:
            raise LeaseLostError(f"job {lease.job.id} is not worked on by {lease.worker} any more")

    def _claimable(self, at: float) -> ColumnElement[bool]:
        return or_(JobRow.state == JobState.QUEUED, and_(JobRow.state == JobState.RUNNING, self._is_over(at)))

    def _is_over(self, at: float) -> ColumnElement[bool]:
        # A lease that ends later than one can was given by a clock that was ahead.
        return or_(JobRow.lease_until < at, JobRow.lease_until > at + self._lease_s + MAX_SKEW_S)

    # Transactions

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        with translated(self._address), engine.begin() as connection:
            yield connection

    @contextmanager
    def _alone(self) -> Iterator[Connection]:
        with self._transaction(self._writing) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            yield connection


def _held(lease: Lease) -> ColumnElement[bool]:
    return and_(
        JobRow.id == lease.job.id,
        JobRow.state == JobState.RUNNING,
        JobRow.worker == lease.worker,
        JobRow.attempt == lease.job.attempt,
    )


def _bump() -> dict[str, Any]:
    return {"revision": JobRow.revision + 1}


def _waiting(counted: bool) -> dict[str, Any]:
    attempt = JobRow.attempt if counted else JobRow.attempt - 1
    return {"state": JobState.QUEUED, "worker": "", "lease_until": 0.0, "attempt": attempt, **_bump()}


def _job_with(connection: Connection, id: str) -> Job:
    row = connection.execute(select(_COLUMNS).where(JobRow.id == id)).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"there is no job {id}")
    return _job_of(row)


def _required(connection: Connection, condition: ColumnElement[bool]) -> Job:
    rows: Select[Any] = select(_COLUMNS).where(condition)
    return _job_of(connection.execute(rows).mappings().one())


def _job_of(row: RowMapping) -> Job:
    names = ("id", "number", "kind", "project", "by", "output", "request", "attempt", "canceled_by", "result", "error")
    return Job(
        **{name: row[name] for name in names},
        started=_moment_or_none(row["started"]),
        finished=_moment_or_none(row["finished"]),
        created=_moment(row["created"]),
        state=JobState(row["state"]),
        meter=Meter(row["phase"], row["done"], row["total"]),
        revision=row["revision"],
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _moment_or_none(seconds: float | None) -> datetime | None:
    return None if seconds is None else _moment(seconds)

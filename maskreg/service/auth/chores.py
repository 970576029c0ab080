"""Chores: work that one process of all servers on a database does now and then.

::

    every process    is refresh due?     claim: due is put off by the lease, where it is not yet     one row changes
    the winner       does the work, and says when it is due next
    killed           due again when the lease is over, for the next process that claims it

A process that takes longer than its lease does no harm: a chore that two do at a time has the same outcome.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from maskreg.catalog.engine import now
from maskreg.digest import Digest
from maskreg.service.auth.database import CheckRow, ChoreRow, Tables

_LONGEST_S = 2 * 86_400.0
"""No chore is put off for longer: one that is was put off by a clock that was ahead, and is due."""


class Chores(Tables):
    """When each chore is due."""

    def is_due(self, name: str) -> bool:
        """Whether a chore can be claimed now; nothing is written."""
        with self._database.read() as connection:
            return _is_due(connection, name)

    def claim(self, name: str, lease_s: float) -> bool:
        """Take a chore that is due, until :meth:`done` or the end of the lease; False where it is another process's."""
        if not self.is_due(name):
            return False
        with self._database.write() as connection:
            # Writers follow one another, so that no other process takes it meanwhile.
            if not _is_due(connection, name):
                return False
            due = now(connection) + lease_s
            if not connection.execute(update(ChoreRow).where(ChoreRow.name == name).values(due=due)).rowcount:
                connection.execute(insert(ChoreRow).values(name=name, due=due))
            return True

    def done(self, name: str, next_s: float) -> None:
        """Say that a chore is done, and due again in so many seconds."""
        with self._database.write() as connection:
            row = update(ChoreRow).where(ChoreRow.name == name)
            connection.execute(row.values(due=now(connection) + next_s))


def _is_due(connection: Connection, name: str) -> bool:
    at = now(connection)
    waits = ChoreRow.name == name, ChoreRow.due > at, ChoreRow.due <= at + _LONGEST_S
    return connection.execute(select(ChoreRow.name).where(*waits)).first() is None


@dataclass(frozen=True)
class PendingCheck:
    """An artifact that waits to be verified."""

    digest: Digest
    by: str
    at: float


class Checks(Tables):
    """Artifacts that wait to be verified."""

    def request(self, digest: Digest, by: str) -> None:
        """Let an artifact be verified; one that waits already keeps its turn."""
        with self._database.write() as connection:
            waiting = connection.execute(select(CheckRow.digest).where(CheckRow.digest == digest)).first()
            if waiting is None:
                connection.execute(insert(CheckRow).values(digest=digest, by=by, at=now(connection)))

    def is_pending(self, digest: Digest) -> bool:
        """Whether an artifact waits to be verified."""
        with self._database.read() as connection:
            return connection.execute(select(CheckRow.digest).where(CheckRow.digest == digest)).first() is not None

    def next(self) -> PendingCheck | None:
        """The one that has waited longest; None when none waits."""
        rows = select(CheckRow.digest, CheckRow.by, CheckRow.at).order_by(CheckRow.at, CheckRow.digest).limit(1)
        with self._database.read() as connection:
            row = connection.execute(rows).first()
        return None if row is None else PendingCheck(Digest(row.digest), row.by, row.at)

    def done(self, check: PendingCheck) -> None:
        """Take an artifact that was verified off the list, unless it was requested again since."""
        with self._database.write() as connection:
            connection.execute(delete(CheckRow).where(CheckRow.digest == check.digest, CheckRow.at == check.at))

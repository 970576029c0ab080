"""Artifacts that wait to be verified, in the order in which that was requested."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from maskreg.catalog.sql.clock import now
from maskreg.digest import Digest
from maskreg.service.accounts.database import Database
from maskreg.service.accounts.models import CheckRow


@dataclass(frozen=True)
class PendingCheck:
    """An artifact that waits to be verified.

    Attributes:
        digest: the artifact.
        by: who requested it.
        at: when, in seconds since 1970.
    """

    digest: Digest
    by: str
    at: float


class Checks:
    """Artifacts that wait to be verified."""

    def __init__(self, database: Database) -> None:
        self._database = database

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

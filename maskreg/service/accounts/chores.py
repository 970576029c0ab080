"""Chores: work that one process of all servers on a database does now and then.

::

    every process    is refresh due?     claim: due is put off by the lease, where it is not yet     one row changes
    the winner       does the work, and says when it is due next
    killed           nobody says so: due again when the lease is over, for whoever claims it then
"""

from __future__ import annotations

import secrets

from sqlalchemy import insert, select, update

from maskreg.catalog.sql.clock import now
from maskreg.service.accounts.database import Database
from maskreg.service.accounts.models import ChoreRow


class Chores:
    """When each chore is due, and who does it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._holder = secrets.token_hex(8)

    def is_due(self, name: str) -> bool:
        """Whether a chore may be claimed now; nothing is written."""
        with self._database.read() as connection:
            due = connection.execute(select(ChoreRow.due).where(ChoreRow.name == name)).scalar()
            return due is None or due <= now(connection)

    def claim(self, name: str, lease_s: float) -> bool:
        """Take a chore that is due.

        Args:
            name: of the chore.
            lease_s: how long nobody else may take it, in seconds, unless :meth:`done` says otherwise.

        Returns:
            Whether this process does it.
        """
        if not self.is_due(name):
            return False
        with self._database.write() as connection:
            at = now(connection)
            taken = {"due": at + lease_s, "holder": self._holder}
            mine = update(ChoreRow).where(ChoreRow.name == name, ChoreRow.due <= at).values(**taken)
            if connection.execute(mine).rowcount:
                return True
            # Writers follow one another, so that nobody else inserts it meanwhile.
            if connection.execute(select(ChoreRow.name).where(ChoreRow.name == name)).first() is not None:
                return False
            connection.execute(insert(ChoreRow).values(name=name, **taken))
            return True

    def renew(self, name: str, lease_s: float) -> None:
        """Keep a chore that takes long; the lease begins anew."""
        with self._database.write() as connection:
            mine = update(ChoreRow).where(ChoreRow.name == name, ChoreRow.holder == self._holder)
            connection.execute(mine.values(due=now(connection) + lease_s))

    def done(self, name: str, next_s: float) -> None:
        """Say that a chore of this process is done, and due again in so many seconds."""
        with self._database.write() as connection:
            mine = update(ChoreRow).where(ChoreRow.name == name, ChoreRow.holder == self._holder)
            connection.execute(mine.values(due=now(connection) + next_s, holder=""))

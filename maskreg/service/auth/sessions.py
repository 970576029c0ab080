"""Sessions: browsers that are signed in. The cookie is random; the server keeps its hash and what it means.

So an operator can end a session at once, and a copy of the database signs no browser in. Both are more than a signed
cookie gives.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, insert, or_

from maskreg.service.auth.changes import record
from maskreg.service.auth.database import Database
from maskreg.service.auth.identity import by_session, hashed, random_secret
from maskreg.service.auth.models import SessionRow
from maskreg.service.auth.roles import Principal

LIFETIME = timedelta(hours=12)
"""How long a session lasts."""


class Sessions:
    """The sessions of a server's pages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, principal: Principal) -> str:
        """Begin a session; gives its cookie. Sessions that have expired are removed."""
        cookie, now = random_secret(), datetime.now(UTC)
        row = {"id": hashed(cookie), "principal": principal.id, "token": principal.token or None}
        with self._database.write() as connection:
            connection.execute(delete(SessionRow).where(SessionRow.expires_at <= now))
            connection.execute(insert(SessionRow).values(**row, created_at=now, expires_at=now + LIFETIME))
            record(connection, principal, "sign in", subject=principal.name)
        return cookie

    def principal(self, cookie: str) -> Principal | None:
        """The principal of a session; None when it is over."""
        with self._database.read() as connection:
            return by_session(connection, cookie)

    def end(self, cookie: str) -> None:
        """Sign out; a session that is over already is no matter."""
        with self._database.write() as connection:
            gone = or_(SessionRow.id == hashed(cookie), SessionRow.expires_at <= datetime.now(UTC))
            connection.execute(delete(SessionRow).where(gone))

"""Accounts: the sender of a request, and every change of projects, roles and tokens."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from maskreg.errors import MaskregError, UnauthenticatedError
from maskreg.service.auth import identity
from maskreg.service.auth.changes import account, record
from maskreg.service.auth.chores import Checks, Chores
from maskreg.service.auth.database import AuditRow, Database
from maskreg.service.auth.identity import Secret
from maskreg.service.auth.projects import Members, People, Projects
from maskreg.service.auth.roles import Audited, Principal
from maskreg.service.auth.tokens import Sessions, Tokens

_USED = timedelta(minutes=1)

_log = logging.getLogger("maskreg.service.auth")


class Accounts:
    """Principals, projects, roles and tokens in a database. Safe to use from many threads."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.projects = Projects(database)
        self.members = Members(database)
        self.tokens = Tokens(database)
        self.sessions = Sessions(database)
        self.people = People(database)
        self.chores = Chores(database)
        self.checks = Checks(database)

    @classmethod
    def open(cls, url: str) -> Accounts:
        """Open the accounts; see :meth:`maskreg.service.auth.database.Database.open`."""
        return cls(Database.open(url))

    def authenticate(self, secret: str) -> Principal:
        """Who a bearer token belongs to."""
        if (token := Secret.parse(secret)) is not None:
            with self.database.read() as connection:
                known = identity.by_token(connection, token)
            if known is not None:
                self._note_use(token.id, known[1])
                return known[0]
        raise UnauthenticatedError("the token is not valid")

    def named(self, name: str) -> Principal:
        """The account of this name with its current roles; only public roles where no such account exists."""
        with self.database.read() as connection:
            id = account(connection, name)
            grants = identity.grants_of(connection, id) if id else {}
            return replace(identity.visitor(connection), name=name, id=id or "", grants=grants)

    def visitor(self) -> Principal:
        """A visitor without token and session, who can read public projects."""
        with self.database.read() as connection:
            return identity.visitor(connection)

    def audit(self, project: str | None = None, *, before: int | None = None, limit: int = 100) -> list[Audited]:
        """The newest changes that were made, newest first; ``before`` is the id of one."""
        rows = select(AuditRow.__table__).order_by(AuditRow.id.desc()).limit(limit)
        if project is not None:
            rows = rows.where(AuditRow.project == project)
        if before is not None:
            rows = rows.where(AuditRow.id < before)
        with self.database.read() as connection:
            return [Audited(**row) for row in connection.execute(rows).mappings()]

    def log(self, by: Principal, action: str, project: str = "", subject: str = "") -> None:
        """Record a change that was made elsewhere than in accounts, such as in the registry."""
        with self.database.write() as connection:
            record(connection, by, action, project=project, subject=subject)

    def close(self) -> None:
        """Close every connection."""
        self.database.close()

    def _note_use(self, token: str, last: datetime | None) -> None:
        before = datetime.now(UTC) - _USED
        if last is not None and last >= before:
            return
        try:
            self.tokens.used(token, before)
        except MaskregError as error:
            # The disk is full or read-only; requests that only read are still answered.
            _log.warning("the use of token %s is not noted: %s", token, error)

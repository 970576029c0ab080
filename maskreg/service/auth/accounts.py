"""Accounts: who sends a request, and all that can be changed about who may do what."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from maskreg.errors import MaskregError, TryAgainError, UnauthenticatedError
from maskreg.service.auth import identity
from maskreg.service.auth.buckets import Buckets
from maskreg.service.auth.changes import account, audited, record
from maskreg.service.auth.chores import Checks, Chores
from maskreg.service.auth.database import Database
from maskreg.service.auth.identity import Secret
from maskreg.service.auth.openid import People
from maskreg.service.auth.projects import Members, Projects
from maskreg.service.auth.roles import Audited, Principal
from maskreg.service.auth.sessions import Sessions
from maskreg.service.auth.tokens import Tokens

_USED = timedelta(minutes=1)

_log = logging.getLogger("maskreg.service.auth")


class Accounts:
    """Who may do what, in a database. Safe to use from many threads.

    Attributes:
        projects: what there is.
        members: who has which role in it.
        tokens: how programs prove who they are.
        sessions: how browsers do.
        people: those who sign in with an OpenID provider.
        chores: what one process of all servers does now and then.
        checks: artifacts that are to be verified.
        buckets: what all processes have let through.
    """

    def __init__(self, database: Database) -> None:
        """Use :meth:`open`."""
        self._database = database
        self.projects = Projects(database)
        self.members = Members(database)
        self.tokens = Tokens(database)
        self.sessions = Sessions(database)
        self.people = People(database)
        self.chores = Chores(database)
        self.checks = Checks(database)
        self.buckets = Buckets(database)
        self._seen = _Seen()

    @classmethod
    def open(cls, url: str) -> Accounts:
        """Open the accounts; see :meth:`maskreg.service.auth.database.Database.open`."""
        return cls(Database.open(url))

    def authenticate(self, secret: str) -> Principal:
        """Who a bearer token belongs to.

        Args:
            secret: the token as the client sends it.

        Raises:
            UnauthenticatedError: unknown, expired or revoked; which of them is not said.
        """
        if (token := Secret.parse(secret)) is not None:
            with self._database.read() as connection:
                known = identity.by_token(connection, token)
            if known is not None:
                self._note_use(token.id, known[1])
                return known[0]
        raise UnauthenticatedError("the token is not valid")

    def named(self, name: str) -> Principal:
        """The account of this name with its current roles; only public roles where no such account exists."""
        with self._database.read() as connection:
            id = account(connection, name)
            grants = identity.grants_of(connection, id) if id else {}
            return replace(identity.visitor(connection), name=name, id=id or "", grants=grants)

    def visitor(self) -> Principal:
        """Somebody who shows nothing: may read public projects."""
        with self._database.read() as connection:
            return identity.visitor(connection)

    def audit(self, project: str | None = None, *, before: int | None = None, limit: int = 100) -> list[Audited]:
        """The newest changes that were made, newest first.

        Args:
            project: where; None for the whole server.
            before: only those with a lower number, for the next page.
            limit: how many at most.
        """
        with self._database.read() as connection:
            return audited(connection, project, before=before, limit=limit)

    def log(self, by: Principal, action: str, *, project: str = "", subject: str = "") -> None:
        """Record a change that was made elsewhere than in accounts, such as in the registry."""
        with self._database.write() as connection:
            record(connection, by, action, project=project, subject=subject)

    def ready(self) -> None:
        """Check that accounts can be read, and that their times mean what they say.

        Raises:
            UnavailableError: the database does not answer.
            ConfigError: its schema is of another version, or its clock and this machine's differ.
        """
        self._database.check()

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    def _note_use(self, token: str, last: datetime | None) -> None:
        before = datetime.now(UTC) - _USED
        if (last is None or last < before) and self._seen.add(token, before):
            try:
                self.tokens.used(token, before)
            except TryAgainError:
                # Somebody else writes for long. The next request notes it; none has to wait for this.
                self._seen.forget(token)
            except MaskregError as error:
                # The disk is full, or only reads: whoever reads is served all the same.
                _log.warning("the use of token %s is not noted: %s", token, error)


class _Seen:
    # When this process last noted the use of a token, so that requests in parallel write once.
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: dict[str, datetime] = {}

    def add(self, token: str, before: datetime) -> bool:
        with self._lock:
            if (at := self._at.get(token)) is not None and at >= before:
                return False
            self._at[token] = datetime.now(UTC)
            return True

    def forget(self, token: str) -> None:
        with self._lock:
            self._at.pop(token, None)

"""Tokens and sessions: what proves an account. The server keeps only a hash of each.

A session is a browser that is signed in. Its cookie is random, so an operator can end it at once, which a signed cookie
would not allow.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, or_, select, update

from maskreg.errors import NotAllowedError, NotFoundError
from maskreg.service.auth import changes
from maskreg.service.auth.database import GrantRow, PrincipalRow, SessionRow, Tables, TokenRow
from maskreg.service.auth.identity import Secret, by_session, grants_of, hashed
from maskreg.service.auth.roles import EVERY_PROJECT, SYSTEM, Principal, Role, name_of
from maskreg.workspace.verbs.accounts import NewToken, Token

FIRST = "admin"
"""Name of the account that a server's first token is for."""

_SHOWN = [column for column in TokenRow.__table__.columns if column.name not in ("secret", "principal")]
_NAMES = [column.name for column in _SHOWN if column.name != "role"]


@dataclass(frozen=True)
class Scope:
    """The rights of a token.

    Attributes:
        expires: how long, from now; None for ever.
    """

    project: str
    role: Role
    expires: timedelta | None = None


class Tokens(Tables):
    """The tokens of a server."""

    def create(self, name: str, scope: Scope, by: Principal) -> NewToken:
        """Make a token, and its owner a member of the project with that role if they had a lower one.

        An owner who makes it keeps the role that they have.
        """
        with self._database.write() as connection:
            is_new = changes.ensure_project(connection, scope.project, by)
            principal = changes.account(connection, name)
            if principal is None:
                principal = changes.new_account(connection, name)
            elif principal != by.id and by.server_role < Role.ADMIN:
                _refuse_speaking_for(connection, principal, name, scope.project)
            held = grants_of(connection, principal)
            if principal != by.id and max(held.get(scope.project, 0), held.get(EVERY_PROJECT, 0)) < scope.role:
                changes.put_grant(connection, principal, scope.project, scope.role, by)
            return replace(_insert(connection, principal, name, scope, by), new_project=is_new)

    def list(self, *, project: str | None = None, principal: str | None = None, revoked: bool = False) -> list[Token]:
        """Tokens, newest first, expired ones included; revoked ones too where they are asked for."""
        rows = _shown() if revoked else _shown().where(TokenRow.revoked_at.is_(None))
        if project is not None:
            rows = rows.where(TokenRow.project == project)
        if principal is not None:
            rows = rows.where(TokenRow.principal == principal)
        with self._database.read() as connection:
            newest = rows.order_by(TokenRow.created_at.desc(), TokenRow.id)
            return [_token(row) for row in connection.execute(newest).mappings()]

    def revoke(self, token: str, by: Principal) -> Token:
        """Revoke a token of one's own, or of a project that one is an admin of."""
        with self._database.write() as connection:
            live = _shown().add_columns(TokenRow.principal).where(TokenRow.id == token, TokenRow.revoked_at.is_(None))
            row = connection.execute(live).mappings().first()
            if row is None or (row["principal"] != by.id and by.role(row["project"]) < Role.ADMIN):
                raise NotFoundError(f"there is no token {token}")
            now = datetime.now(UTC)
            with changes.keeping_admins(connection, row["project"], f"revoking token {token}"):
                connection.execute(update(TokenRow).where(TokenRow.id == token).values(revoked_at=now))
            changes.record(connection, by, "revoke token", project=row["project"], subject=token)
            return _token({**row, "revoked_at": now})

    def first(self, *, anew: bool = False) -> NewToken | None:
        """The first token of a server, for all projects and as admin; None when the server has an admin already.

        ``anew`` makes one in any case and revokes the earlier ones, for an operator who lost it.
        """
        with self._database.write() as connection:
            runs = select(func.count()).select_from(GrantRow).where(GrantRow.project == EVERY_PROJECT)
            if connection.execute(runs.where(GrantRow.role >= int(Role.ADMIN))).scalar() and not anew:
                return None
            principal = changes.account(connection, FIRST) or changes.new_account(connection, FIRST)
            changes.revoke_tokens(connection, principal, None)
            changes.put_grant(connection, principal, EVERY_PROJECT, Role.ADMIN, SYSTEM)
            return _insert(connection, principal, FIRST, Scope(EVERY_PROJECT, Role.ADMIN), SYSTEM)

    def used(self, token: str, before: datetime) -> None:
        """Remember that a token was used now, unless it was since ``before``."""
        now = datetime.now(UTC)
        stale = or_(TokenRow.used_at.is_(None), TokenRow.used_at < before)
        with self._database.write() as connection:
            connection.execute(update(TokenRow).where(TokenRow.id == token, stale).values(used_at=now))


def _refuse_speaking_for(connection: Connection, principal: str, name: str, project: str) -> None:
    elsewhere: Collection[str] = set(grants_of(connection, principal)) - {project}
    person = connection.execute(select(PrincipalRow.identity).where(PrincipalRow.id == principal)).scalar()
    if elsewhere or person:
        raise NotAllowedError(
            f"{name} also acts outside of project {project}, so only {name} or an admin of the server can make a "
            "token for that name"
        )


def _insert(connection: Connection, principal: str, name: str, scope: Scope, by: Principal) -> NewToken:
    secret, now, role = Secret.new(), datetime.now(UTC), name_of(scope.role)
    expires = None if scope.expires is None else now + scope.expires
    row: dict[str, Any] = {
        "id": secret.id,
        "project": scope.project,
        "created_at": now,
        "created_by": by.name,
        "expires_at": expires,
    }
    stored = {"principal": principal, "secret": hashed(secret.secret), "role": int(scope.role)}
    connection.execute(insert(TokenRow).values(**row, **stored))
    detail = {"name": name, "role": role}
    changes.record(connection, by, "create token", project=scope.project, subject=secret.id, detail=detail)
    return NewToken(**row, name=name, role=role, token=secret.text)


def _shown() -> Select[Any]:
    return select(*_SHOWN, PrincipalRow.name).join(PrincipalRow, PrincipalRow.id == TokenRow.principal)


def _token(row: Mapping[Any, Any]) -> Token:
    return Token(**{key: row[key] for key in (*_NAMES, "name")}, role=name_of(row["role"]))


LIFETIME = timedelta(hours=12)
"""How long a session lasts."""


class Sessions(Tables):
    """The sessions of a server's pages."""

    def begin(self, principal: Principal) -> str:
        """Begin a session; gives its cookie. Sessions that have expired are removed."""
        cookie, now = secrets.token_urlsafe(32), datetime.now(UTC)
        row = {"id": hashed(cookie), "principal": principal.id, "token": principal.token or None}
        with self._database.write() as connection:
            connection.execute(delete(SessionRow).where(SessionRow.expires_at <= now))
            connection.execute(insert(SessionRow).values(**row, created_at=now, expires_at=now + LIFETIME))
            changes.record(connection, principal, "sign in", subject=principal.name)
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

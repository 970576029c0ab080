"""From the secret in a request to its principal, with the roles of this moment.

A token or session never has more rights than its owner::

    grants of ada                  {team: admin, paper: reader}
    token for team as writer    -> {team: writer}
    token for * as reader       -> {team: reader, paper: reader}
    ada loses team              -> the first token has no rights

The token and the grants are read by one statement, which sees one state: two could see a token from before a change
and roles from after it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, or_, select

from maskreg.service.auth.database import GrantRow, PrincipalRow, ProjectRow, SessionRow, TokenRow
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Role

_SHOWN = bindparam("shown", type_=TokenRow.id.type)
_NOW = bindparam("now", type_=TokenRow.expires_at.type)
_LIVE_TOKEN = and_(TokenRow.revoked_at.is_(None), or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > _NOW))

# A row for each grant, and one where there is none.
_HELD = (
    select(PrincipalRow.id, PrincipalRow.name, TokenRow.id.label("token"), TokenRow.project, TokenRow.role)
    .add_columns(TokenRow.used_at, TokenRow.secret, GrantRow.project.label("granted"), GrantRow.role.label("held"))
    .outerjoin(GrantRow, GrantRow.principal == PrincipalRow.id)
    .where(PrincipalRow.removed_at.is_(None))
)
_BY_TOKEN = _HELD.join(TokenRow, TokenRow.principal == PrincipalRow.id).where(TokenRow.id == _SHOWN, _LIVE_TOKEN)
_BY_SESSION = (
    _HELD.join(SessionRow, SessionRow.principal == PrincipalRow.id)
    .outerjoin(TokenRow, TokenRow.id == SessionRow.token)
    .where(SessionRow.id == _SHOWN, SessionRow.expires_at > _NOW)
    .where(or_(SessionRow.token.is_(None), and_(TokenRow.id.is_not(None), _LIVE_TOKEN)))
)


def visitor(connection: Connection) -> Principal:
    """A visitor without token and session."""
    special = or_(ProjectRow.public.is_(True), ProjectRow.deleted_at.is_not(None))
    rows = connection.execute(select(ProjectRow.name, ProjectRow.deleted_at).where(special)).all()
    deleted = frozenset(name for name, deleted_at in rows if deleted_at is not None)
    return Principal(public=frozenset(name for name, _ in rows) - deleted, deleted=deleted)


def by_token(connection: Connection, secret: Secret) -> tuple[Principal, datetime | None] | None:
    """The principal of a token, and when it was last used; None when it is not valid."""
    rows = _rows(connection, _BY_TOKEN, secret.id)
    # Compared for an unknown token too, so that the answer takes as long.
    if not secret.fits(rows[0].secret if rows else "") or not rows:
        return None
    return _limited(connection, rows, rows[0].project, rows[0].role), rows[0].used_at


def by_session(connection: Connection, cookie: str) -> Principal | None:
    """The principal of a browser's session; None when it, or the token that it was signed in with, is not valid."""
    rows = _rows(connection, _BY_SESSION, hashed(cookie))
    if not rows:
        return None
    limits = (rows[0].project, rows[0].role) if rows[0].token else (EVERY_PROJECT, Role.ADMIN)
    return _limited(connection, rows, *limits)


def _rows(connection: Connection, statement: Select[Any], shown: str) -> Sequence[Row[Any]]:
    return connection.execute(statement, {"shown": shown, "now": datetime.now(UTC)}).all()


def _limited(connection: Connection, rows: Sequence[Row[Any]], project: str, most: int) -> Principal:
    held = {row.granted: Role(row.held) for row in rows if row.granted is not None}
    if project != EVERY_PROJECT:
        held = {project: max(held.get(project, Role.NONE), held.get(EVERY_PROJECT, Role.NONE))}
    grants = {name: min(role, Role(most)) for name, role in held.items() if role > Role.NONE}
    holder = rows[0]
    return replace(visitor(connection), name=holder.name, grants=grants, token=holder.token or "", id=holder.id)


def grants_of(connection: Connection, principal: str) -> dict[str, Role]:
    """The roles of a principal by project."""
    rows = connection.execute(select(GrantRow.project, GrantRow.role).where(GrantRow.principal == principal))
    return {project: Role(role) for project, role in rows}


_TOKEN = re.compile(r"mr_(?P<id>[0-9a-f]{16})_(?P<secret>[A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class Secret:
    """A token in two parts."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Secret:
        """A new token."""
        return cls(secrets.token_hex(8), secrets.token_urlsafe(32))

    @classmethod
    def parse(cls, text: str) -> Secret | None:
        """A token from its text; None for any other text."""
        match = _TOKEN.fullmatch(text)
        return cls(match["id"], match["secret"]) if match else None

    @property
    def text(self) -> str:
        """The token as its owner keeps it."""
        return f"mr_{self.id}_{self.secret}"

    def fits(self, stored: str) -> bool:
        """Whether a stored hash fits the secret; takes as long for each answer."""
        return hmac.compare_digest(hashed(self.secret), stored)


def hashed(secret: str) -> str:
    """The sha256 of a random secret, as hex digits."""
    return hashlib.sha256(secret.encode()).hexdigest()

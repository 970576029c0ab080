"""From the secret in a request to its principal, with the roles of this moment.

A token or session never has more rights than its owner::

    grants of ada                  {team: admin, paper: reader}
    token for team as writer    -> {team: writer}
    token for * as reader       -> {team: reader, paper: reader}
    ada loses team              -> the first token has no rights

All of it is read by one statement, whose rows are of several kinds. Every request waits for it; and one statement sees
one state, where several could see a token from before a change and roles from after it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    CompoundSelect,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    case,
    literal_column,
    null,
    or_,
    select,
    union_all,
)

from maskreg.service.auth.database import GrantRow, PrincipalRow, ProjectRow, SessionRow, TokenRow
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Role

_HOLDER, _GRANT, _PUBLIC, _DELETED = range(4)
_COLUMNS = ("kind", "project", "role", "at", "id", "name", "token", "secret")

_SHOWN = bindparam("shown", type_=TokenRow.id.type)
_NOW = bindparam("now", type_=TokenRow.expires_at.type)
_LIVE_TOKEN = and_(TokenRow.revoked_at.is_(None), or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > _NOW))


def _rows(kind: Any, **values: Any) -> Select[Any]:
    # Every kind has the same columns, which one statement needs; those that it does not fill are empty.
    empty = {"role": literal_column("0"), "at": null()}
    columns = {"kind": kind, **{name: values.get(name, empty.get(name, literal_column("''"))) for name in _COLUMNS[1:]}}
    return select(*(column.label(name) for name, column in columns.items()))


def _number(kind: int) -> Any:
    return literal_column(str(kind))


_SPECIAL = _rows(
    case((ProjectRow.deleted_at.is_(None), _number(_PUBLIC)), else_=_number(_DELETED)), project=ProjectRow.name
).where(or_(ProjectRow.public.is_(True), ProjectRow.deleted_at.is_not(None)))


_BY_TOKEN = union_all(
    _rows(
        _number(_HOLDER),
        project=TokenRow.project,
        role=TokenRow.role,
        at=TokenRow.used_at,
        id=PrincipalRow.id,
        name=PrincipalRow.name,
        token=TokenRow.id,
        secret=TokenRow.secret,
    )
    .join(PrincipalRow, PrincipalRow.id == TokenRow.principal)
    .where(TokenRow.id == _SHOWN, PrincipalRow.removed_at.is_(None), _LIVE_TOKEN),
    _rows(_number(_GRANT), project=GrantRow.project, role=GrantRow.role)
    .join(TokenRow, TokenRow.principal == GrantRow.principal)
    .where(TokenRow.id == _SHOWN),
    _SPECIAL,
)

_BY_SESSION = union_all(
    _rows(
        _number(_HOLDER),
        project=TokenRow.project,
        role=TokenRow.role,
        id=PrincipalRow.id,
        name=PrincipalRow.name,
        token=SessionRow.token,
    )
    .select_from(SessionRow)
    .join(PrincipalRow, PrincipalRow.id == SessionRow.principal)
    .outerjoin(TokenRow, TokenRow.id == SessionRow.token)
    .where(
        SessionRow.id == _SHOWN,
        SessionRow.expires_at > _NOW,
        PrincipalRow.removed_at.is_(None),
        or_(SessionRow.token.is_(None), _LIVE_TOKEN),
    ),
    _rows(_number(_GRANT), project=GrantRow.project, role=GrantRow.role)
    .join(SessionRow, SessionRow.principal == GrantRow.principal)
    .where(SessionRow.id == _SHOWN),
    _SPECIAL,
)


def visitor(connection: Connection) -> Principal:
    """A visitor without token and session."""
    rows = connection.execute(_SPECIAL).all()
    return Principal(public=_projects(rows, _PUBLIC), deleted=_projects(rows, _DELETED))


def by_token(connection: Connection, secret: Secret) -> tuple[Principal, datetime | None] | None:
    """The principal of a token, and when it was last used; None when it is not valid."""
    rows = _shown(connection, _BY_TOKEN, secret.id)
    holder = _holder(rows)
    # Compared for an unknown token too, so that the answer takes as long.
    if not secret.fits(holder.secret if holder else "") or holder is None:
        return None
    return _limited(rows, holder, holder.project, holder.role), holder.at


def by_session(connection: Connection, cookie: str) -> Principal | None:
    """The principal of a browser's session; None when it, or the token that it was signed in with, is not valid."""
    rows = _shown(connection, _BY_SESSION, hashed(cookie))
    holder = _holder(rows)
    if holder is None:
        return None
    if holder.token is None:
        return _limited(rows, holder, EVERY_PROJECT, Role.ADMIN)
    return _limited(rows, holder, holder.project, holder.role)


def _shown(connection: Connection, statement: CompoundSelect[Any], shown: str) -> Sequence[Row[Any]]:
    return connection.execute(statement, {"shown": shown, "now": datetime.now(UTC)}).all()


def _holder(rows: Iterable[Row[Any]]) -> Row[Any] | None:
    return next((row for row in rows if row.kind == _HOLDER), None)


def _limited(rows: Sequence[Row[Any]], holder: Row[Any], project: str, most: int) -> Principal:
    held = {row.project: Role(row.role) for row in rows if row.kind == _GRANT}
    if project != EVERY_PROJECT:
        held = {project: max(held.get(project, Role.NONE), held.get(EVERY_PROJECT, Role.NONE))}
    grants = {name: min(role, Role(most)) for name, role in held.items() if role > Role.NONE}
    public, deleted = _projects(rows, _PUBLIC), _projects(rows, _DELETED)
    return Principal(holder.name, grants, public, holder.token or "", id=holder.id, deleted=deleted)


def _projects(rows: Iterable[Row[Any]], kind: int) -> frozenset[str]:
    return frozenset(row.project for row in rows if row.kind == kind)


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

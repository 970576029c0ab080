"""From what a request shows to the principal behind it, and what that one may do now.

A token or session never may more than its principal::

    grants of ada                  {team: admin, paper: reader}
    token for team as writer    -> {team: writer}
    token for * as reader       -> {team: reader, paper: reader}
    ada loses team              -> the first token may nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, and_, or_, select

from maskreg.service.accounts.models import GrantRow, PrincipalRow, ProjectRow, SessionRow, TokenRow
from maskreg.service.accounts.roles import EVERY_PROJECT, Principal, Role
from maskreg.service.accounts.secrets import Secret, hashed

_LIVE_TOKENS = (
    select(
        TokenRow.id.label("token"),
        TokenRow.secret,
        TokenRow.project,
        TokenRow.role,
        TokenRow.used_at,
        PrincipalRow.id,
        PrincipalRow.name,
    )
    .join(PrincipalRow, PrincipalRow.id == TokenRow.principal)
    .where(PrincipalRow.removed_at.is_(None), TokenRow.revoked_at.is_(None))
)


def _not_expired(now: datetime) -> Any:
    return or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > now)


def visitor(connection: Connection) -> Principal:
    """Somebody who shows nothing."""
    public, deleted = _special_projects(connection)
    return Principal(public=public, deleted=deleted)


def by_token(connection: Connection, secret: Secret) -> tuple[Principal, datetime | None] | None:
    """The principal of a token, and when it was last used; None when it is not valid."""
    live = _LIVE_TOKENS.where(TokenRow.id == secret.id, _not_expired(datetime.now(UTC)))
    row = connection.execute(live).mappings().first()
    # Compared for an unknown token too, so that the answer takes as long.
    if not secret.fits(row["secret"] if row else "") or row is None:
        return None
    return _limited(connection, row, row["project"], row["role"]), row["used_at"]


def by_session(connection: Connection, cookie: str) -> Principal | None:
    """The principal of a browser's session; None when it, or the token that it was signed in with, is not valid."""
    now = datetime.now(UTC)
    live = (
        select(
            PrincipalRow.id, PrincipalRow.name, SessionRow.token, TokenRow.project, TokenRow.role, TokenRow.revoked_at
        )
        .join(PrincipalRow, PrincipalRow.id == SessionRow.principal)
        .outerjoin(TokenRow, TokenRow.id == SessionRow.token)
        .where(
            SessionRow.id == hashed(cookie),
            SessionRow.expires_at > now,
            PrincipalRow.removed_at.is_(None),
            or_(SessionRow.token.is_(None), and_(TokenRow.revoked_at.is_(None), _not_expired(now))),
        )
    )
    row = connection.execute(live).mappings().first()
    if row is None:
        return None
    if row["token"] is None:
        return _limited(connection, {**row, "token": ""}, EVERY_PROJECT, Role.ADMIN)
    return _limited(connection, row, row["project"], row["role"])


def _limited(connection: Connection, row: Mapping[Any, Any], project: str, most: int) -> Principal:
    held = grants_of(connection, row["id"])
    if project != EVERY_PROJECT:
        held = {project: max(held.get(project, Role.NOBODY), held.get(EVERY_PROJECT, Role.NOBODY))}
    grants = {name: min(role, Role(most)) for name, role in held.items() if role > Role.NOBODY}
    public, deleted = _special_projects(connection)
    return Principal(row["name"], grants, public, row["token"], id=row["id"], deleted=deleted)


def grants_of(connection: Connection, principal: str) -> dict[str, Role]:
    """The roles of a principal by project."""
    rows = connection.execute(select(GrantRow.project, GrantRow.role).where(GrantRow.principal == principal))
    return {project: Role(role) for project, role in rows}


def _special_projects(connection: Connection) -> tuple[frozenset[str], frozenset[str]]:
    special = select(ProjectRow.name, ProjectRow.deleted_at).where(
        or_(ProjectRow.public.is_(True), ProjectRow.deleted_at.is_not(None))
    )
    rows = list(connection.execute(special))
    deleted = frozenset(name for name, at in rows if at is not None)
    return frozenset(name for name, at in rows if at is None), deleted

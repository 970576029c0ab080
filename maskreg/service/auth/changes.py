"""What changes of accounts are made of, within a transaction: projects, principals and grants as rows.

::

    grant    ada writer in team         an account for ada where the name is free
    revoke   ada in team                her role there; her tokens for team and for all projects; her sessions
    grant    ada reader in team         the old tokens stay revoked; an account without any role left was closed,
                                        so that this ada has a new account
"""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, delete, insert, or_, select, update

from maskreg.errors import NotAllowedError, NotFoundError, UsageError
from maskreg.ref import check_project, printable
from maskreg.service.auth.database import AuditRow, GrantRow, PrincipalRow, ProjectRow, SessionRow, TokenRow
from maskreg.service.auth.identity import grants_of
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Project, Role

_MAX_NAME = 128


def check_name(name: str) -> None:
    """Check the name of an account."""
    if not name.strip() or name != name.strip() or len(name) > _MAX_NAME or "/" in name or printable(name) != name:
        raise UsageError(
            f"{printable(name)!r} is not a name of an account",
            hint=f"write 1 to {_MAX_NAME} characters that one can see, without a slash or a blank at either end",
        )


def existing_project(connection: Connection, name: str) -> Project:
    """A project that was not deleted."""
    live = select(ProjectRow.__table__).where(ProjectRow.name == name, ProjectRow.deleted_at.is_(None))
    row = connection.execute(live).mappings().first()
    if row is None:
        raise NotFoundError(f"there is no project {name}")
    return Project(**row)


def insert_project(connection: Connection, name: str, by: Principal, public: bool = False) -> None:
    """Make a project whose name is free."""
    check_project(name)
    row = {"name": name, "public": public, "created_at": datetime.now(UTC), "created_by": by.name}
    connection.execute(insert(ProjectRow).values(**row))
    record(connection, by, "create project", project=name, subject=name, detail={"public": public})


def ensure_project(connection: Connection, name: str, by: Principal) -> bool:
    """Make a project that is not there yet, on behalf of an admin of the server; ``*`` is always there.

    Returns:
        Whether it was made.
    """
    if name == EVERY_PROJECT:
        return False
    known = connection.execute(select(ProjectRow.name).where(ProjectRow.name == name)).first()
    if known is None and by.server_role >= Role.ADMIN:
        insert_project(connection, name, by)
        return True
    existing_project(connection, name)
    return False


def account(connection: Connection, name: str) -> str | None:
    """The id of the account of that name; None without one."""
    live = select(PrincipalRow.id).where(PrincipalRow.name == name, PrincipalRow.removed_at.is_(None))
    return connection.execute(live).scalar()


def new_account(connection: Connection, name: str, identity: str | None = None) -> str:
    """Make an account whose name is free; gives its id."""
    check_name(name)
    held = connection.execute(select(PrincipalRow.name).where(PrincipalRow.removed_at.is_(None))).scalars()
    if _look(name) in map(_look, held):
        raise NotAllowedError(f"the name {name} looks like another account's", hint="choose another name")
    row = {"id": secrets.token_hex(8), "name": name, "identity": identity, "created_at": datetime.now(UTC)}
    connection.execute(insert(PrincipalRow).values(**row))
    return str(row["id"])


def put_grant(connection: Connection, principal: str, project: str, role: Role, by: Principal) -> None:
    """Give a role in a project, in place of the one held until now."""
    same = (GrantRow.principal == principal, GrantRow.project == project)
    connection.execute(delete(GrantRow).where(*same))
    row = {"principal": principal, "project": project, "role": int(role), "at": datetime.now(UTC), "by": by.name}
    connection.execute(insert(GrantRow).values(**row))


def drop_grant(connection: Connection, principal: str, project: str) -> None:
    """Take away a role, and all that could have used it; close an account that has no other."""
    connection.execute(delete(GrantRow).where(GrantRow.principal == principal, GrantRow.project == project))
    scopes = (project, EVERY_PROJECT) if project != EVERY_PROJECT else None
    revoke_tokens(connection, principal, scopes)
    connection.execute(delete(SessionRow).where(SessionRow.principal == principal))
    if not grants_of(connection, principal):
        revoke_tokens(connection, principal, None)
        closed = update(PrincipalRow).where(PrincipalRow.id == principal, PrincipalRow.identity.is_(None))
        connection.execute(closed.values(removed_at=datetime.now(UTC)))


def revoke_tokens(connection: Connection, principal: str, projects: tuple[str, ...] | None) -> None:
    """Revoke the tokens of an account for these projects, or all."""
    live = update(TokenRow).where(TokenRow.principal == principal, TokenRow.revoked_at.is_(None))
    if projects is not None:
        live = live.where(TokenRow.project.in_(projects))
    connection.execute(live.values(revoked_at=datetime.now(UTC)))


def record(
    connection: Connection,
    by: Principal,
    action: str,
    *,
    project: str = "",
    subject: str = "",
    detail: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Append to the log, in the transaction of the change itself."""
    row = {"at": datetime.now(UTC), "by": by.name, "token": by.token, "action": action, "project": project}
    connection.execute(insert(AuditRow).values(**row, subject=subject, detail=dict(detail)))


@contextmanager
def keeping_admins(connection: Connection, project: str, change: str) -> Iterator[None]:
    """Refuse a change that leaves a project, or the server, without an admin who can get in.

    The caller's transaction is to end with the error, so that nothing of the change stays.
    """
    scopes = dict.fromkeys((project, EVERY_PROJECT))
    before = [scope for scope in scopes if _is_managed(connection, scope)]
    yield
    for scope in before:
        if not _is_managed(connection, scope):
            where = "this server" if scope == EVERY_PROJECT else f"project {scope}"
            quoted = "'*'" if scope == EVERY_PROJECT else scope
            raise NotAllowedError(
                f"{change} would leave {where} without an admin who can get in",
                hint="make another first",
                admin_of=quoted,
            )


def _is_managed(connection: Connection, project: str) -> bool:
    scopes = {project, EVERY_PROJECT}
    token = (
        select(TokenRow.id)
        .where(
            TokenRow.principal == PrincipalRow.id,
            TokenRow.project.in_(scopes),
            TokenRow.role >= int(Role.ADMIN),
            TokenRow.revoked_at.is_(None),
            or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > datetime.now(UTC)),
        )
        .exists()
    )
    able = (
        select(PrincipalRow.id)
        .join(GrantRow, GrantRow.principal == PrincipalRow.id)
        .where(
            PrincipalRow.removed_at.is_(None),
            GrantRow.project.in_(scopes),
            GrantRow.role >= int(Role.ADMIN),
            or_(PrincipalRow.identity.is_not(None), token),
        )
    )
    return connection.execute(able.limit(1)).first() is not None


def _look(name: str) -> str:
    # Equal for names that differ in case, width or blanks alone.
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())

"""What changes of accounts are made of, within a transaction: projects, principals and grants as rows.

::

    grant    ada writer in team         an account for ada where nobody has the name
    revoke   ada in team                her role there; her tokens for team and for all projects; her sessions
    grant    ada reader in team         the old tokens stay revoked; an account without any role left was closed,
                                        so that this ada is somebody new
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select, update

from maskreg.errors import BadRefError, NotAllowedError, NotFoundError, UsageError
from maskreg.ref import Ref, printable
from maskreg.service.accounts import audit
from maskreg.service.accounts.identity import grants_of
from maskreg.service.accounts.lookalikes import look
from maskreg.service.accounts.models import GrantRow, PrincipalRow, ProjectRow, SessionRow, TokenRow
from maskreg.service.accounts.records import Project
from maskreg.service.accounts.roles import EVERY_PROJECT, Principal, Role
from maskreg.service.accounts.secrets import random_id

_MAX_NAME = 128


def check_project_name(name: str) -> None:
    """Check the name of a project.

    Raises:
        BadRefError: it is none.
    """
    fault = BadRefError(f"{name!r} is not a project", hint="write lower-case letters and digits, as in team-a")
    try:
        is_project = "/" not in name and Ref.parse(f"{name}/a").project == name
    except BadRefError:
        raise fault from None
    if not is_project:
        raise fault


def check_name(name: str) -> None:
    """Check the name of somebody.

    Raises:
        UsageError: it is empty, long, or has a slash or what a terminal obeys or does not show.
    """
    if not name.strip() or name != name.strip() or len(name) > _MAX_NAME or "/" in name or printable(name) != name:
        raise UsageError(
            f"{printable(name)!r} is not a name of somebody",
            hint=f"write 1 to {_MAX_NAME} characters that one can see, without a slash or a blank at either end",
        )


def existing_project(connection: Connection, name: str) -> Project:
    """A project that was not deleted.

    Raises:
        NotFoundError: there is none of that name.
    """
    live = select(ProjectRow.__table__).where(ProjectRow.name == name, ProjectRow.deleted_at.is_(None))
    row = connection.execute(live).mappings().first()
    if row is None:
        raise NotFoundError(f"there is no project {name}")
    return Project(**row)


def insert_project(connection: Connection, name: str, by: Principal, public: bool = False) -> None:
    """Make a project whose name is free."""
    check_project_name(name)
    row = {"name": name, "public": public, "created_at": datetime.now(UTC), "created_by": by.name}
    connection.execute(insert(ProjectRow).values(**row))
    audit.log(connection, by, "create project", project=name, subject=name, detail={"public": public})


def ensure_project(connection: Connection, name: str, by: Principal) -> None:
    """Make a project that is not there yet, on behalf of an admin of the server; ``*`` is always there.

    Raises:
        NotFoundError: it is not there, and somebody else asks; or it was deleted.
        BadRefError: not the name of a project.
    """
    if name == EVERY_PROJECT:
        return
    known = connection.execute(select(ProjectRow.name).where(ProjectRow.name == name)).first()
    if known is None and by.server_role >= Role.ADMIN:
        insert_project(connection, name, by)
    else:
        existing_project(connection, name)


def account(connection: Connection, name: str) -> str | None:
    """The id of the account of that name; None when nobody has it."""
    live = select(PrincipalRow.id).where(PrincipalRow.name == name, PrincipalRow.removed_at.is_(None))
    return connection.execute(live).scalar()


def new_account(connection: Connection, name: str, identity: str | None = None) -> str:
    """Make an account whose name is free; gives its id.

    Raises:
        UsageError: not a name.
        NotAllowedError: it looks like that of another account.
    """
    check_name(name)
    held = connection.execute(select(PrincipalRow.name).where(PrincipalRow.removed_at.is_(None))).scalars()
    if look(name) in map(look, held):
        raise NotAllowedError(f"the name {name} looks like that of another account", hint="choose another name")
    row = {"id": random_id(), "name": name, "identity": identity, "created_at": datetime.now(UTC)}
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

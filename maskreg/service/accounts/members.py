"""Members: who has which role in a project, or in all."""

from __future__ import annotations

from sqlalchemy import select

from maskreg.errors import NotFoundError
from maskreg.service.accounts import audit
from maskreg.service.accounts.database import Database
from maskreg.service.accounts.lockout import keeping_admins
from maskreg.service.accounts.models import GrantRow, PrincipalRow
from maskreg.service.accounts.records import Member, name_of
from maskreg.service.accounts.roles import Principal, Role
from maskreg.service.accounts.rows import account, drop_grant, ensure_project, new_account, put_grant


class Members:
    """The members of a server's projects; ``*`` is all projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, project: str) -> list[Member]:
        """Who has a role in a project, by name."""
        rows = (
            select(PrincipalRow.name, GrantRow.role, GrantRow.at, GrantRow.by)
            .join(PrincipalRow, PrincipalRow.id == GrantRow.principal)
            .where(GrantRow.project == project)
            .order_by(PrincipalRow.name)
        )
        with self._database.read() as connection:
            return [Member(name, name_of(role), at, by) for name, role, at, by in connection.execute(rows)]

    def grant(self, project: str, name: str, role: Role, by: Principal) -> Member:
        """Give somebody a role in a project, in place of the one they have.

        Raises:
            UsageError: not a name.
            NotFoundError: there is no such project.
            NotAllowedError: the role is lower, and nobody could manage the project, or the server, any more.
        """
        shown = name_of(role)
        with self._database.write() as connection:
            ensure_project(connection, project, by)
            principal = account(connection, name) or new_account(connection, name)
            with keeping_admins(connection, project, f"making {name} {shown}"):
                put_grant(connection, principal, project, role, by)
            audit.log(connection, by, "grant", project=project, subject=name, detail={"role": shown})
        return next(member for member in self.of(project) if member.name == name)

    def revoke(self, project: str, name: str, by: Principal) -> None:
        """Take somebody's role in a project, with their tokens for it and for all projects, and their sessions.

        Raises:
            NotFoundError: they have none.
            NotAllowedError: nobody could manage the project, or the server, any more.
        """
        with self._database.write() as connection:
            principal = account(connection, name)
            held = select(GrantRow.role).where(GrantRow.principal == principal, GrantRow.project == project)
            if principal is None or connection.execute(held).first() is None:
                raise NotFoundError(f"{name} is no member of project {project}")
            with keeping_admins(connection, project, f"taking the role of {name}"):
                drop_grant(connection, principal, project)
            audit.log(connection, by, "revoke", project=project, subject=name)

"""Projects, their members, and people who sign in with an OpenID provider.

The account of such a person::

    known identity                      its account, under any name that the provider uses now
    a verified address that an admin    that account becomes the person's: the admin named exactly this address
      gave a role to
    a name that is taken                refused: a provider does not hand out accounts of this server
    otherwise                           a new account, without a role unless a group gives one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import EllipsisType

from sqlalchemy import Connection, delete, select, update

from maskreg.errors import NotAllowedError, NotFoundError, OutputExistsError
from maskreg.ref import check_project
from maskreg.service.auth import changes
from maskreg.service.auth.database import GrantRow, PrincipalRow, ProjectRow, Tables
from maskreg.service.auth.roles import SYSTEM, Member, Principal, Project, Role, name_of


class Projects(Tables):
    """The projects of a server."""

    def visible(self, principal: Principal) -> list[Project]:
        """The projects that a principal can read, by name; deleted ones for an admin of the server alone."""
        everything = principal.server_role >= Role.ADMIN
        with self._database.read() as connection:
            rows = connection.execute(select(ProjectRow.__table__).order_by(ProjectRow.name)).mappings()
            projects = [Project(**row) for row in rows]
        return [project for project in projects if everything or principal.role(project.name) >= Role.READER]

    def get(self, name: str) -> Project:
        """A project that was not deleted."""
        with self._database.read() as connection:
            return changes.existing_project(connection, name)

    def ensure(self, name: str, by: Principal) -> None:
        """Make a project that is not there yet, on behalf of an admin of the server."""
        with self._database.read() as connection:
            known = connection.execute(select(ProjectRow.deleted_at).where(ProjectRow.name == name)).first()
        if known is None or known.deleted_at is not None:
            with self._database.write() as connection:
                changes.ensure_project(connection, name, by)

    def adopt(self, names: Iterable[str]) -> None:
        """Make projects that a registry has already, where none is known here; for the first start of a server."""
        with self._database.write() as connection:
            if connection.execute(select(ProjectRow.name).limit(1)).first() is None:
                for name in sorted(set(names)):
                    changes.insert_project(connection, name, SYSTEM)

    def create(self, name: str, by: Principal, *, public: bool = False, reuse: bool = False) -> Project:
        """Make a project; ``reuse`` takes the name of one that was deleted."""
        check_project(name)
        with self._database.write() as connection:
            before = connection.execute(select(ProjectRow.deleted_at).where(ProjectRow.name == name)).first()
            if before is not None and before.deleted_at is None:
                raise OutputExistsError(f"project {name}", hint="choose another name")
            if before is not None and not reuse:
                raise NotAllowedError(
                    f"project {name} was deleted, and references to it can still be in use",
                    hint="an admin of the server can make it again with reuse",
                )
            connection.execute(delete(ProjectRow).where(ProjectRow.name == name))
            changes.insert_project(connection, name, by, public)
            return changes.existing_project(connection, name)

    def change(
        self,
        name: str,
        by: Principal,
        *,
        public: bool | None = None,
        max_bytes: int | EllipsisType | None = ...,
        max_artifacts: int | EllipsisType | None = ...,
    ) -> Project:
        """Change a project; what is left out stays, and None is no limit."""
        values: dict[str, bool | int | None] = {}
        if public is not None:
            values["public"] = public
        for key, limit in (("max_bytes", max_bytes), ("max_artifacts", max_artifacts)):
            if not isinstance(limit, EllipsisType):
                values[key] = limit
        with self._database.write() as connection:
            changes.existing_project(connection, name)
            if values:
                connection.execute(update(ProjectRow).where(ProjectRow.name == name).values(**values))
                changes.record(connection, by, "change project", project=name, subject=name, detail=values)
            return changes.existing_project(connection, name)

    def delete(self, name: str, by: Principal) -> None:
        """Delete a project that has no artifacts any more; it loses its members, and its name stays taken."""
        with self._database.write() as connection:
            changes.existing_project(connection, name)
            for row in connection.execute(select(GrantRow.principal).where(GrantRow.project == name)).all():
                changes.drop_grant(connection, row.principal, name)
            now = datetime.now(UTC)
            closed = update(ProjectRow).where(ProjectRow.name == name).values(deleted_at=now, public=False)
            connection.execute(closed)
            changes.record(connection, by, "delete project", project=name, subject=name)


class Members(Tables):
    """The members of a server's projects; ``*`` is all projects."""

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
        """Give an account a role in a project, in place of its last one."""
        shown = name_of(role)
        with self._database.write() as connection:
            changes.ensure_project(connection, project, by)
            principal = changes.account(connection, name) or changes.new_account(connection, name)
            with changes.keeping_admins(connection, project, f"making {name} {shown}"):
                changes.put_grant(connection, principal, project, role, by)
            changes.record(connection, by, "grant", project=project, subject=name, detail={"role": shown})
        return next(member for member in self.of(project) if member.name == name)

    def revoke(self, project: str, name: str, by: Principal) -> None:
        """Take an account's role in a project, with its tokens for it and for all projects, and its sessions."""
        with self._database.write() as connection:
            principal = changes.account(connection, name)
            held = select(GrantRow.role).where(GrantRow.principal == principal, GrantRow.project == project)
            if principal is None or connection.execute(held).first() is None:
                raise NotFoundError(f"{name} is no member of project {project}")
            with changes.keeping_admins(connection, project, f"taking the role of {name}"):
                changes.drop_grant(connection, principal, project)
            changes.record(connection, by, "revoke", project=project, subject=name)


PROVIDER = Principal("OpenID provider", SYSTEM.grants)
"""Who gives the roles that follow from groups."""


@dataclass(frozen=True)
class Person:
    """A person, as the provider describes them.

    Attributes:
        identity: issuer and subject; never given to another person.
        verified: the name is an address that the provider has verified.
    """

    identity: str
    name: str
    verified: bool = False


class People(Tables):
    """The accounts of people who sign in."""

    def sign_in(self, person: Person, grants: Mapping[str, Role] | None = None) -> Principal:
        """The account of a person who signed in."""
        with self._database.write() as connection:
            id, name = _account_of(connection, person)
            if grants is not None:
                _follow_groups(connection, id, name, grants)
        return Principal(name, id=id)


def _account_of(connection: Connection, person: Person) -> tuple[str, str]:
    live = select(PrincipalRow.id, PrincipalRow.name).where(PrincipalRow.removed_at.is_(None))
    known = connection.execute(live.where(PrincipalRow.identity == person.identity)).first()
    if known is not None:
        return known.id, known.name
    invited = changes.account(connection, person.name)
    if invited is None:
        return changes.new_account(connection, person.name, person.identity), person.name
    free = update(PrincipalRow).where(PrincipalRow.id == invited, PrincipalRow.identity.is_(None))
    if not person.verified or connection.execute(free.values(identity=person.identity)).rowcount != 1:
        raise NotAllowedError(f"the name {person.name} belongs to another account of this server")
    return invited, person.name


def _follow_groups(connection: Connection, id: str, name: str, grants: Mapping[str, Role]) -> None:
    rows = select(GrantRow.project, GrantRow.role, GrantRow.by).where(GrantRow.principal == id)
    held = {project: (role, by) for project, role, by in connection.execute(rows)}
    for project, (_, by) in held.items():
        if by == PROVIDER.name and project not in grants:
            changes.drop_grant(connection, id, project)
            changes.record(connection, PROVIDER, "revoke", project=project, subject=name)
    for project, role in grants.items():
        before, by = held.get(project, (Role.NONE, PROVIDER.name))
        # What an admin gave stays as it is.
        if by == PROVIDER.name and before != role:
            changes.ensure_project(connection, project, PROVIDER)
            changes.put_grant(connection, id, project, role, PROVIDER)
            changes.record(connection, PROVIDER, "grant", project=project, subject=name, detail={"role": name_of(role)})

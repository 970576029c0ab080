"""Projects: made, made public, limited, deleted."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from types import EllipsisType

from sqlalchemy import delete, select, update

from maskreg.errors import NotAllowedError, OutputExistsError
from maskreg.service.accounts import audit
from maskreg.service.accounts.database import Database
from maskreg.service.accounts.models import GrantRow, ProjectRow
from maskreg.service.accounts.records import Project
from maskreg.service.accounts.roles import SYSTEM, Principal, Role
from maskreg.service.accounts.rows import (
    check_project_name,
    drop_grant,
    ensure_project,
    existing_project,
    insert_project,
)


class Projects:
    """The projects of a server."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def visible(self, principal: Principal) -> list[Project]:
        """The projects that somebody may read, by name; those that were deleted for an admin of the server alone."""
        everything = principal.server_role >= Role.ADMIN
        with self._database.read() as connection:
            rows = connection.execute(select(ProjectRow.__table__).order_by(ProjectRow.name)).mappings()
            projects = [Project(**row) for row in rows]
        return [project for project in projects if everything or principal.role(project.name) >= Role.READER]

    def get(self, name: str) -> Project:
        """A project that was not deleted.

        Raises:
            NotFoundError: there is none of that name.
        """
        with self._database.read() as connection:
            return existing_project(connection, name)

    def ensure(self, name: str, by: Principal) -> None:
        """Make a project that is not there yet, on behalf of an admin of the server.

        Raises:
            NotFoundError: it is not there, and somebody else asks; or it was deleted.
            BadRefError: not the name of a project.
        """
        with self._database.read() as connection:
            known = connection.execute(select(ProjectRow.deleted_at).where(ProjectRow.name == name)).first()
        if known is None or known.deleted_at is not None:
            with self._database.write() as connection:
                ensure_project(connection, name, by)

    def adopt(self, names: Iterable[str]) -> None:
        """Make projects that a registry has already, where none is known here; for the first start of a server."""
        with self._database.write() as connection:
            if connection.execute(select(ProjectRow.name).limit(1)).first() is None:
                for name in sorted(set(names)):
                    insert_project(connection, name, SYSTEM)

    def create(self, name: str, by: Principal, *, public: bool = False, reuse: bool = False) -> Project:
        """Make a project.

        Args:
            name: as in references.
            by: who makes it.
            public: let everybody read it.
            reuse: take the name of a project that was deleted.

        Raises:
            BadRefError: not a name of a project.
            OutputExistsError: it exists.
            NotAllowedError: it was deleted, and ``reuse`` is not set.
        """
        check_project_name(name)
        with self._database.write() as connection:
            before = connection.execute(select(ProjectRow.deleted_at).where(ProjectRow.name == name)).first()
            if before is not None and before.deleted_at is None:
                raise OutputExistsError(f"project {name}", hint="choose another name")
            if before is not None and not reuse:
                raise NotAllowedError(
                    f"project {name} was deleted, and references to it may still be in use",
                    hint="an admin of the server can make it again with reuse",
                )
            connection.execute(delete(ProjectRow).where(ProjectRow.name == name))
            insert_project(connection, name, by, public)
            return existing_project(connection, name)

    def change(
        self,
        name: str,
        by: Principal,
        *,
        public: bool | None = None,
        max_bytes: int | EllipsisType | None = ...,
        max_artifacts: int | EllipsisType | None = ...,
    ) -> Project:
        """Change a project; what is left out stays.

        Args:
            name: of the project.
            by: who changes it.
            public: whether everybody may read it.
            max_bytes: limit of the bytes of its artifacts; None for none.
            max_artifacts: limit of their number; None for none.

        Raises:
            NotFoundError: there is no such project.
        """
        values: dict[str, bool | int | None] = {}
        if public is not None:
            values["public"] = public
        for key, limit in (("max_bytes", max_bytes), ("max_artifacts", max_artifacts)):
            if not isinstance(limit, EllipsisType):
                values[key] = limit
        with self._database.write() as connection:
            existing_project(connection, name)
            if values:
                connection.execute(update(ProjectRow).where(ProjectRow.name == name).values(**values))
                audit.log(connection, by, "change project", project=name, subject=name, detail=values)
            return existing_project(connection, name)

    def delete(self, name: str, by: Principal) -> None:
        """Delete a project that has no artifacts any more; nobody is a member then, and its name stays taken.

        Raises:
            NotFoundError: there is no such project.
        """
        with self._database.write() as connection:
            existing_project(connection, name)
            for row in connection.execute(select(GrantRow.principal).where(GrantRow.project == name)).all():
                drop_grant(connection, row.principal, name)
            now = datetime.now(UTC)
            closed = update(ProjectRow).where(ProjectRow.name == name).values(deleted_at=now, public=False)
            connection.execute(closed)
            audit.log(connection, by, "delete project", project=name, subject=name)

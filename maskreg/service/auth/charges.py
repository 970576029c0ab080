"""Artifacts on their way: which projects are charged with them until they have a name."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, insert, select

from maskreg.digest import Digest
from maskreg.service.auth.database import Database
from maskreg.service.auth.models import ChargeRow


class Charges:
    """Artifacts on their way, by digest and project."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, digest: Digest, project: str, size: int, at: datetime) -> None:
        """Charge a project with an artifact; one that is charged already stays so.

        Args:
            digest: the artifact.
            project: who is charged.
            size: of all its objects, in bytes.
            at: now, by the clock of the store.
        """
        with self._database.write() as connection:
            same = select(ChargeRow.digest).where(ChargeRow.digest == digest, ChargeRow.project == project)
            if connection.execute(same).first() is None:
                row = {"digest": digest, "project": project, "bytes": size, "at": at.timestamp()}
                connection.execute(insert(ChargeRow).values(row))

    def projects(self, digest: Digest) -> frozenset[str]:
        """Projects that are charged with an artifact."""
        with self._database.read() as connection:
            rows = connection.execute(select(ChargeRow.project).where(ChargeRow.digest == digest))
            return frozenset(rows.scalars())

    def of(self, project: str) -> dict[Digest, int]:
        """Sizes of the artifacts that a project is charged with, in bytes."""
        with self._database.read() as connection:
            rows = connection.execute(select(ChargeRow.digest, ChargeRow.bytes).where(ChargeRow.project == project))
            return {Digest(row.digest): row.bytes for row in rows}

    def before(self, at: datetime) -> frozenset[Digest]:
        """Artifacts that some project has been charged with since before a time."""
        with self._database.read() as connection:
            rows = connection.execute(select(ChargeRow.digest).where(ChargeRow.at < at.timestamp()))
            return frozenset(Digest(digest) for digest in rows.scalars())

    def drop(self, digest: Digest, *, project: str | None = None, before: datetime | None = None) -> None:
        """Charge projects with an artifact no longer; that none is charged with it is no error.

        Args:
            digest: the artifact.
            project: charge this one no longer; None for all.
            before: only what began before this time; None for any time.
        """
        rows = delete(ChargeRow).where(ChargeRow.digest == digest)
        if project is not None:
            rows = rows.where(ChargeRow.project == project)
        if before is not None:
            rows = rows.where(ChargeRow.at < before.timestamp())
        with self._database.write() as connection:
            connection.execute(rows)

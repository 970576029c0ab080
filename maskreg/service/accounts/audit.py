"""The audit log: who changed what, when, and which token they showed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, insert, select

from maskreg.service.accounts.models import AuditRow
from maskreg.service.accounts.records import Audited
from maskreg.service.accounts.roles import Principal


def log(
    connection: Connection,
    by: Principal,
    action: str,
    *,
    project: str = "",
    subject: str = "",
    detail: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Append to the log, in the transaction of the change itself.

    Args:
        connection: of that transaction.
        by: who made the change.
        action: what was done.
        project: where; empty for the server as a whole.
        subject: what it happened to.
        detail: anything else; never a secret.
    """
    row = {"at": datetime.now(UTC), "by": by.name, "token": by.token, "action": action, "project": project}
    connection.execute(insert(AuditRow).values(**row, subject=subject, detail=dict(detail)))


def audited(connection: Connection, project: str | None, *, before: int | None, limit: int) -> list[Audited]:
    """The newest changes, newest first.

    Args:
        connection: of a transaction.
        project: where; None for the whole server.
        before: only those with a lower number.
        limit: how many at most.
    """
    rows = select(AuditRow.__table__).order_by(AuditRow.id.desc()).limit(limit)
    if project is not None:
        rows = rows.where(AuditRow.project == project)
    if before is not None:
        rows = rows.where(AuditRow.id < before)
    return [Audited(**row) for row in connection.execute(rows).mappings()]

"""The table of jobs. Only migrations create it.

Times are seconds since 1970 by the database's clock, so that heartbeats do not depend on the workers' clocks.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Double, Index
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from maskreg.catalog.models import SERIAL, Words


class JobsBase(DeclarativeBase):
    """Holds the metadata that migrations are checked against."""

    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy reads it from the class)
        str: Words(),
        int: BigInteger(),
        float: Double(),
        dict[str, Any]: JSON(none_as_null=True),
    }


class JobRow(JobsBase):
    """One job; see :class:`maskreg.service.jobs.queue.Job`.

    Attributes:
        worker: who works on it; empty while it waits.
        beat: when its worker last said that it works on it.
    """

    __tablename__ = "service_jobs"
    __table_args__ = (
        Index("uq_service_jobs_id", "id", unique=True),
        Index("ix_service_jobs_state", "state"),
        Index("ix_service_jobs_project_number", "project", "number"),
    )

    number: Mapped[int] = mapped_column(SERIAL, primary_key=True)
    id: Mapped[str]
    kind: Mapped[str]
    project: Mapped[str]
    by: Mapped[str]
    output: Mapped[str]
    request: Mapped[dict[str, Any]]
    state: Mapped[str]
    phase: Mapped[str]
    done: Mapped[int]
    total: Mapped[int]
    attempt: Mapped[int]
    created: Mapped[float]
    started: Mapped[float | None]
    finished: Mapped[float | None]
    canceled_by: Mapped[str]
    result: Mapped[dict[str, Any] | None]
    error: Mapped[dict[str, Any] | None]
    worker: Mapped[str]
    beat: Mapped[float]

"""The revisions of the table of jobs."""

from __future__ import annotations

from maskreg.catalog.sql.schema import Schema
from maskreg.service.jobs.models import JobsBase

JOBS = Schema(
    JobsBase.metadata, ("0001",), "maskreg_jobs_schema", "jobs", mend={"hint": "restore the database from a backup"}
)
"""The queue of jobs."""

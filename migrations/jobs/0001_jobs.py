"""The queue of jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Types are defined anew: a migration must not change when the models do.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

TEXTS = ("id", "kind", "project", "by", "output", "state", "phase", "canceled_by", "worker")
NUMBERS = ("done", "total", "attempt")


def upgrade() -> None:
    op.create_table(
        "service_jobs",
        sa.Column("number", SERIAL, primary_key=True),
        *(sa.Column(name, TEXT, nullable=False) for name in TEXTS),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in NUMBERS),
        *(sa.Column(name, sa.Double(), nullable=False) for name in ("created", "beat")),
        *(sa.Column(name, sa.Double()) for name in ("started", "finished")),
        sa.Column("request", sa.JSON(), nullable=False),
        *(sa.Column(name, sa.JSON()) for name in ("result", "error")),
    )
    op.create_index("uq_service_jobs_id", "service_jobs", ["id"], unique=True)
    op.create_index("ix_service_jobs_state", "service_jobs", ["state"])
    op.create_index("ix_service_jobs_project_number", "service_jobs", ["project", "number"])


def downgrade() -> None:
    op.drop_table("service_jobs")

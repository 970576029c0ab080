"""Work that is shared by servers: chores, artifacts to verify, and buckets of requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Types are defined anew: a migration must not change when the models do.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "service_chores",
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("due", sa.Double(), nullable=False),
        sa.Column("holder", TEXT, nullable=False),
    )
    op.create_table(
        "service_checks",
        sa.Column("digest", TEXT, primary_key=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("by", TEXT, nullable=False),
    )
    op.create_table(
        "service_buckets",
        sa.Column("key", TEXT, primary_key=True),
        sa.Column("held", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
    )
    for table in ("service_checks", "service_buckets"):
        op.create_index(f"ix_{table}_at", table, ["at"])


def downgrade() -> None:
    for table in ("buckets", "checks", "chores"):
        op.drop_table(f"service_{table}")

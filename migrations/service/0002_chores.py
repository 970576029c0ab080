"""Work that is shared by servers: chores and artifacts to verify."""

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
    op.create_index("ix_service_checks_at", "service_checks", ["at"])


def downgrade() -> None:
    for table in ("checks", "chores"):
        op.drop_table(f"service_{table}")

"""Which projects are charged with artifacts that are on their way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Types are defined anew: a migration must not change when the models do.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "service_charges",
        sa.Column("digest", TEXT, primary_key=True),
        sa.Column("project", TEXT, primary_key=True),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
    )
    for column in ("project", "at"):
        op.create_index(f"ix_service_charges_{column}", "service_charges", [column])


def downgrade() -> None:
    op.drop_table("service_charges")

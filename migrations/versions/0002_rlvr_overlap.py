"""Search by the recorded overlap with a reference mask: two columns, filled from the measurements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

LATEST = """
    SELECT {column} FROM measurements
    WHERE measurements.digest = artifacts.digest AND metric = 'rlvr_overlap' AND by_group = ''
    ORDER BY id DESC LIMIT 1
"""


def upgrade() -> None:
    with op.batch_alter_table("artifacts") as table:
        table.add_column(sa.Column("rlvr_overlap", sa.Double()))
        table.add_column(sa.Column("rlvr_against", TEXT))
    value, against = LATEST.format(column="value"), LATEST.format(column="against")
    op.execute(f"UPDATE artifacts SET rlvr_overlap = ({value}), rlvr_against = ({against})")
    op.create_index("ix_artifacts_rlvr_overlap", "artifacts", ["rlvr_overlap"])


def downgrade() -> None:
    op.drop_index("ix_artifacts_rlvr_overlap", "artifacts")
    with op.batch_alter_table("artifacts") as table:
        table.drop_column("rlvr_against")
        table.drop_column("rlvr_overlap")

"""Rename the column ``licence`` to ``license``."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _rename("licence", "license")


def downgrade() -> None:
    _rename("license", "licence")


def _rename(old: str, new: str) -> None:
    op.drop_index(f"ix_refs_{old}", "refs")
    with op.batch_alter_table("refs") as table:
        table.alter_column(old, new_column_name=new)
    op.create_index(f"ix_refs_{new}", "refs", [new])

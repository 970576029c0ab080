"""Every table, as the models have it: until the first release, this revision follows them and stays the only one."""

from __future__ import annotations

from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    for tables in context.config.attributes["metadata"]:
        tables.create_all(op.get_bind())


def downgrade() -> None:
    for tables in reversed(context.config.attributes["metadata"]):
        tables.drop_all(op.get_bind())

"""For large registries: how far the index has followed the journal of its store; on PostgreSQL, finer statistics."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

RANGES = ("density", "ffn_density", "ffn_share", "ffn_lift", "rlvr_overlap")


def upgrade() -> None:
    # Its seal is of the columns that it had: without it, the index is filled again when it is opened.
    op.execute("DELETE FROM filled")
    with op.batch_alter_table("filled") as table:
        table.drop_column("seal")
        table.add_column(sa.Column("followed", sa.BigInteger()))
        table.add_column(sa.Column("seal", sa.Text().with_variant(sa.Text(collation="C"), "postgresql")))
    # Of a hundred ranges, the last may hold a thousand times as many rows as match; a word that is not among the few
    # hundred that stand in most texts is taken for one in a thousand; and from a sample of the names few artifacts seem
    # to have many each. By any of these the planner goes through all names for the rows of a few artifacts, or sorts
    # all that match for a page.
    _plan(
        *(f"TABLE artifacts ALTER {column} SET STATISTICS 1000" for column in RANGES),
        "TABLE refs ALTER digest SET (n_distinct = -0.5)",
        "INDEX ix_refs_words ALTER 1 SET STATISTICS 1000",
    )


def downgrade() -> None:
    op.execute("DELETE FROM filled")
    with op.batch_alter_table("filled") as table:
        table.drop_column("followed")
    _plan(
        *(f"TABLE artifacts ALTER {column} SET STATISTICS -1" for column in RANGES),
        "TABLE refs ALTER digest RESET (n_distinct)",
        "INDEX ix_refs_words ALTER 1 SET STATISTICS -1",
    )


def _plan(*changes: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        for change in changes:
            op.execute(f"ALTER {change}")

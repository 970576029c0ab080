"""The index (artifacts, refs), and what only the catalog holds (measurements, events, seen sources)."""

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
TIME = sa.DateTime(timezone=True)

INDEXES = {
    "artifacts": ("kind", "density", "ffn_density", "ffn_share", "ffn_lift", "source_root", "target_root"),
    "refs": ("name", "digest", "family", "method", "licence", "at"),
    "measurements": ("metric",),
    "events": ("at", "by", "action", "subject"),
}


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("digest", TEXT, primary_key=True),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("rule", TEXT, nullable=False),
        sa.Column("exact", sa.Boolean(), nullable=False),
        sa.Column("density", sa.Double(), nullable=False),
        sa.Column("ffn_density", sa.Double()),
        sa.Column("ffn_share", sa.Double()),
        sa.Column("ffn_lift", sa.Double()),
        sa.Column("nnz", sa.BigInteger(), nullable=False),
        sa.Column("numel", sa.BigInteger(), nullable=False),
        sa.Column("params", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("source_root", TEXT, nullable=False),
        sa.Column("source_hub", TEXT, nullable=False),
        sa.Column("target_root", TEXT, nullable=False),
    )
    op.create_table(
        "refs",
        sa.Column("project", TEXT, primary_key=True),
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("tag", TEXT, primary_key=True),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("digest", TEXT),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.Column("family", TEXT, nullable=False),
        sa.Column("method", TEXT, nullable=False),
        sa.Column("licence", TEXT, nullable=False),
        sa.Column("description", TEXT, nullable=False),
        sa.Column("meta", sa.JSON(), nullable=False),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("origin", TEXT, nullable=False),
        sa.Column("words", TEXT, nullable=False),
    )
    op.create_table(
        "measurements",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("metric", TEXT, nullable=False),
        sa.Column("against", TEXT, nullable=False),
        sa.Column("by_group", TEXT, nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("by", TEXT, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("at", TIME, nullable=False),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("action", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
    )
    op.create_table(
        "seen_sources",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("root", TEXT, nullable=False),
        sa.Column("path", TEXT, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.UniqueConstraint("root", "path", name="uq_seen_sources_root_path"),
    )
    for table, columns in INDEXES.items():
        for column in columns:
            op.create_index(f"ix_{table}_{column}", table, [column])
    op.create_index("ix_measurements_digest_metric", "measurements", ["digest", "metric"])


def downgrade() -> None:
    for table in ("seen_sources", "events", "measurements", "refs", "artifacts"):
        op.drop_table(table)

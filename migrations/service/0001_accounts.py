"""Principals, projects, grants, tokens, sessions, and the audit log."""

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
    "service_grants": ("project",),
    "service_tokens": ("principal", "project"),
    "service_sessions": ("principal", "token", "expires_at"),
    "service_audit": ("at", "by", "project"),
}


def upgrade() -> None:
    principals()
    op.create_table(
        "service_projects",
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("public", sa.Boolean(), nullable=False),
        sa.Column("max_bytes", sa.BigInteger()),
        sa.Column("max_artifacts", sa.BigInteger()),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", TEXT, nullable=False),
        sa.Column("deleted_at", TIME),
    )
    op.create_table(
        "service_grants",
        sa.Column("principal", TEXT, sa.ForeignKey("service_principals.id"), primary_key=True),
        sa.Column("project", TEXT, primary_key=True),
        sa.Column("role", sa.BigInteger(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("by", TEXT, nullable=False),
    )
    credentials()
    op.create_table(
        "service_audit",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("at", TIME, nullable=False),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("token", TEXT, nullable=False),
        sa.Column("action", TEXT, nullable=False),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
    )
    for table, columns in INDEXES.items():
        for column in columns:
            op.create_index(f"ix_{table}_{column}", table, [column])


def principals() -> None:
    op.create_table(
        "service_principals",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("identity", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("removed_at", TIME),
    )
    live = sa.text("removed_at IS NULL")
    for column in ("name", "identity"):
        op.create_index(
            f"uq_service_principals_{column}",
            "service_principals",
            [column],
            unique=True,
            sqlite_where=live,
            postgresql_where=live,
        )


def credentials() -> None:
    op.create_table(
        "service_tokens",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("secret", TEXT, nullable=False),
        sa.Column("principal", TEXT, sa.ForeignKey("service_principals.id"), nullable=False),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("role", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", TEXT, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("revoked_at", TIME),
        sa.Column("used_at", TIME),
    )
    op.create_table(
        "service_sessions",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("principal", TEXT, sa.ForeignKey("service_principals.id"), nullable=False),
        sa.Column("token", TEXT, sa.ForeignKey("service_tokens.id")),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
    )


def downgrade() -> None:
    for table in ("audit", "sessions", "tokens", "grants", "projects", "principals"):
        op.drop_table(f"service_{table}")

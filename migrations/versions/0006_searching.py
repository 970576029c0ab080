"""Indexes for searching large registries: every order, names of a project by time; on PostgreSQL, words in a text."""

from __future__ import annotations

import logging

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SORTED = [("artifacts", "nnz"), ("artifacts", "numel"), ("artifacts", "params"), ("artifacts", "size"), ("refs", "by")]
WORDS = "ix_refs_folded_trigrams"
_log = logging.getLogger("maskreg")


def upgrade() -> None:
    op.create_index("ix_refs_project_at", "refs", ["project", "at"])
    for table, column in SORTED:
        op.create_index(f"ix_{table}_{column}", table, [column])
    if op.get_bind().dialect.name == "postgresql":
        _index_words(op.get_bind())


def downgrade() -> None:
    op.drop_index("ix_refs_project_at", "refs")
    for table, column in SORTED:
        op.drop_index(f"ix_{table}_{column}", table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"DROP INDEX IF EXISTS {WORDS}")


def _index_words(connection: sa.Connection) -> None:
    # An extension that comes with PostgreSQL, but may be left out of an installation, or kept from this user.
    if not connection.scalar(sa.text("SELECT 1 FROM pg_available_extensions WHERE name = 'pg_trgm'")):
        _log.warning("PostgreSQL has no extension pg_trgm here; searching for words reads every name")
        return
    try:
        with connection.begin_nested():
            op.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
            op.execute(f"CREATE INDEX {WORDS} ON refs USING gin (folded gin_trgm_ops)")
    except sa.exc.ProgrammingError as error:
        _log.warning("pg_trgm cannot be used (%s); searching for words reads every name", error.orig)

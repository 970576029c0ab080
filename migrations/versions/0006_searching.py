"""Indexes for searching large registries: every order, names of a project by time; on PostgreSQL, words."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SORTED = [("artifacts", "nnz"), ("artifacts", "numel"), ("artifacts", "params"), ("artifacts", "size"), ("refs", "by")]


def upgrade() -> None:
    op.create_index("ix_refs_project_at", "refs", ["project", "at"])
    for table, column in SORTED:
        op.create_index(f"ix_{table}_{column}", table, [column])
    if op.get_bind().dialect.name == "postgresql":
        # One lexeme for each word; a search looks for lexemes that begin with its own. New rows are indexed at once:
        # those of a pending list would be read by each search.
        words = "array_to_tsvector(string_to_array(substr(words, 2), E'\\n'))"
        op.execute(f"CREATE INDEX ix_refs_words ON refs USING gin ({words}) WITH (fastupdate = off)")


def downgrade() -> None:
    op.drop_index("ix_refs_project_at", "refs")
    for table, column in SORTED:
        op.drop_index(f"ix_{table}_{column}", table)
    if op.get_bind().dialect.name == "postgresql":
        op.drop_index("ix_refs_words", "refs")

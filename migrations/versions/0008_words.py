"""On PostgreSQL, every word that names have, each once: what searches look for the beginnings of words in."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute('CREATE TABLE words (word text COLLATE "C" PRIMARY KEY)')
        op.execute("INSERT INTO words SELECT DISTINCT unnest(string_to_array(substr(words, 2), E'\\n')) FROM refs")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_table("words")

"""Seals of rows and sums over tables, so that damage shows; names that could not be read when the index was filled."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
import xxhash
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TIME = sa.DateTime(timezone=True)

# Columns and seals are defined anew: a migration must not change when the models do.
COLUMNS: dict[str, dict[str, Any]] = {
    "artifacts": {
        **dict.fromkeys(("digest", "kind", "rule", "source_root", "source_hub", "target_root", "rlvr_against"), TEXT),
        **dict.fromkeys(("density", "ffn_density", "ffn_share", "ffn_lift", "rlvr_overlap"), sa.Double()),
        **dict.fromkeys(("nnz", "numel", "params", "size"), sa.BigInteger()),
        "exact": sa.Boolean(),
    },
    "refs": {
        **dict.fromkeys(("project", "name", "tag", "digest", "family", "method", "license", "description"), TEXT),
        **dict.fromkeys(("by", "origin", "words"), TEXT),
        "n": sa.BigInteger(),
        "deleted": sa.Boolean(),
        "meta": sa.JSON(),
        "at": TIME,
    },
    "measurements": {
        **dict.fromkeys(("digest", "metric", "against", "by_group", "by"), TEXT),
        "value": sa.Double(),
        "detail": sa.JSON(),
        "at": TIME,
    },
    "events": {**dict.fromkeys(("by", "action", "subject"), TEXT), "detail": sa.JSON(), "at": TIME},
}
KEYS = {
    "artifacts": ("digest",),
    "refs": ("project", "name", "tag"),
    "measurements": ("id",),
    "events": ("id",),
}
SUMMED = ("artifacts", "refs", "measurements")


def upgrade() -> None:
    op.create_table(
        "sums",
        sa.Column("table", TEXT, primary_key=True),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("sum", TEXT, nullable=False),
    )
    # Without its seal, the index is filled again when it is opened.
    op.execute("DELETE FROM filled")
    op.add_column("filled", sa.Column("unread", sa.JSON()))
    op.add_column("filled", sa.Column("seal", TEXT))
    for name in COLUMNS:
        op.add_column(name, sa.Column("seal", TEXT))
        _seal_rows(name)


def downgrade() -> None:
    for name in COLUMNS:
        with op.batch_alter_table(name) as table:
            table.drop_column("seal")
    with op.batch_alter_table("filled") as table:
        table.drop_column("unread")
        table.drop_column("seal")
    op.drop_table("sums")


def _seal_rows(name: str) -> None:
    connection = op.get_bind()
    types = {**{key: sa.BigInteger() for key in KEYS[name] if key == "id"}, **COLUMNS[name], "seal": TEXT}
    table = sa.table(name, *(sa.column(key, kind) for key, kind in types.items()))
    total = count = 0
    for row in connection.execute(sa.select(table)).mappings().all():
        content = {key: _plain(row[key]) for key in COLUMNS[name]}
        seal = xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())
        same = sa.and_(*(table.c[key] == row[key] for key in KEYS[name]))
        connection.execute(sa.update(table).where(same).values(seal=seal))
        total += xxhash.xxh3_128_intdigest(f"{row.get('id', '')}:{seal}".encode())
        count += 1
    if name in SUMMED and connection.dialect.name == "sqlite":
        sums = sa.table("sums", sa.column("table"), sa.column("rows"), sa.column("sum"))
        connection.execute(sa.insert(sums).values(table=name, rows=count, sum=f"{total % (1 << 128):032x}"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    return value

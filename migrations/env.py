"""Alembic's environment: migrates a given connection inside that connection's transaction."""

from __future__ import annotations

from alembic import context

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=context.config.attributes["metadata"],
    version_table=context.config.attributes["version_table"],
    # SQLite cannot alter most of a table; a batch copies it instead.
    render_as_batch=connection.dialect.name == "sqlite",
    # SQLite's DDL is transactional, because the engine begins transactions and not the driver.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

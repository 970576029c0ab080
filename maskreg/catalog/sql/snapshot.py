"""Searching rows that were checked: copied into a database in memory, where no damaged index can hide one."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import create_engine, insert
from sqlalchemy.pool import StaticPool

from maskreg.catalog.query import Query, SearchResult
from maskreg.catalog.sql.models import ArtifactRow, Base, RefRow
from maskreg.catalog.sql.seals import Row
from maskreg.catalog.sql.statement import results, statement


def search_rows(refs: Sequence[Row], artifacts: Sequence[Row], query: Query) -> list[SearchResult]:
    """What :meth:`~maskreg.catalog.base.Catalog.search` answers from these rows.

    Raises:
        UsageError: the query is malformed.
        sqlalchemy.exc.IntegrityError: two rows have one key.
    """
    select_refs = statement(query)
    engine = create_engine("sqlite://", poolclass=StaticPool)
    try:
        with engine.begin() as connection:
            # Without migrations, which take longer than the search.
            Base.metadata.create_all(connection, [Base.metadata.tables[name] for name in ("refs", "artifacts")])
            for model, rows in ((RefRow, refs), (ArtifactRow, artifacts)):
                if rows:
                    connection.execute(insert(model), list(rows))
            return results(connection.execute(select_refs))
    finally:
        engine.dispose()

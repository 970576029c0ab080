from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from maskreg.catalog import Catalog, Query
from maskreg.catalog.sql import SqlCatalog
from maskreg.catalog.sql.words import MAX_WHOLE
from maskreg.ref import Card
from tests.catalog.conftest import digest, empty_catalog, entry, manifest


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[SqlCatalog]:
    """An empty catalog on PostgreSQL."""
    with empty_catalog("postgresql+psycopg", request, tmp_path) as catalog:
        assert isinstance(catalog, SqlCatalog)
        yield catalog


@contextmanager
def statements(catalog: SqlCatalog) -> Iterator[list[tuple[str, Any]]]:
    """What the catalog asks its database, with the values."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        asked.append((statement, values))

    event.listen(catalog._engine, "before_cursor_execute", note)
    yield asked
    event.remove(catalog._engine, "before_cursor_execute", note)


def known_words(catalog: SqlCatalog) -> list[str]:
    with catalog._read() as connection:
        return list(connection.execute(text("SELECT word FROM words ORDER BY word")).scalars())


def lexemes(catalog: SqlCatalog, query: Query) -> list[str]:
    with statements(catalog) as asked:
        catalog.search(query)
    _, values = asked[-1]
    return [value for name, value in values.items() if name.startswith("lexemes_")]


def test_the_beginning_of_any_number_of_words_is_found(catalog: Catalog) -> None:
    catalog.put_artifact(digest(0), manifest())
    for name, words in {"few": range(2), "many": range(2, MAX_WHOLE), "rest": range(MAX_WHOLE, 2 * MAX_WHOLE)}.items():
        description = " ".join(f"w{number:03d}" for number in words)
        catalog.put_ref(entry(name, digest(0), card=Card(description=description)))

    def names(text: str) -> list[str]:
        return [row.name for row in catalog.search(Query(text=text, sort="name", descending=False))]

    assert MAX_WHOLE == 100, "w and w0 have more, and as many as are asked for"
    assert names("w") == ["few", "many", "rest"]
    assert names("w0") == names("w00 w0 w") == ["few", "many"]
    assert names("w000") == names("w w000") == ["few"]
    assert names("w1 r") == ["rest"]
    assert names("w0 w1") == names("w0000") == names("x") == []


def test_a_word_in_a_project_is_not_one_of_another(catalog: Catalog) -> None:
    catalog.put_artifact(digest(0), manifest())
    for project in ("team.a_b", "team.a", "team"):
        catalog.put_ref(entry("mask", digest(0), project=project))
    assert [row.project for row in catalog.search(Query(text="mas", project="team.a_b"))] == ["team.a_b"]
    assert [row.project for row in catalog.search(Query(text="mas", project="team"))] == ["team"]
    assert catalog.search(Query(text="mas", project="tea")) == []


def test_postgresql_is_asked_for_whole_words_by_an_index(served: SqlCatalog) -> None:
    served.put_artifact(digest(0), manifest())
    for name in ("math", "math-03", "math-03b", "mathe'matics"):
        served.put_ref(entry(name, digest(0), project="team"))
    assert lexemes(served, Query(text="math-0 nothing")) == ["('math-03' | 'math-03b')", "('nothing':*)"]
    assert lexemes(served, Query(text="mathe'", project="team")) == ["('mathe''matics') & 'team'"]
    assert lexemes(served, Query(text="math-0")) == ["('math-0':*)"]
    with statements(served) as asked:
        assert [row.name for row in served.search(Query(text="mathe"))] == ["mathe'matics"]
    with served._read() as connection:
        connection.execute(text("SET enable_seqscan = off"))
        search, values = asked[-1]
        plan = connection.exec_driver_sql(f"EXPLAIN {search}", values).scalars().all()
        connection.execute(text("RESET enable_seqscan"))
    assert "ix_refs_words" in "\n".join(plan)


def test_a_rebuild_forgets_the_words_of_names_that_are_gone(served: SqlCatalog) -> None:
    served.put_ref(entry("first", digest(0)))
    served.put_ref(entry("second", digest(0)))
    assert known_words(served) == ["default", "first", "second"]
    served.put_ref(entry("first", None, n=2))
    assert known_words(served) == ["default", "first", "second"]
    served.rebuild([entry("second", digest(0))], [])
    assert known_words(served) == ["default", "second"]

"""A SQLite file that is read and written without SQLAlchemy holds what a catalog writes and reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from maskreg.catalog import Measurement, Query, open_catalog
from maskreg.digest import Digest
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.tags import annotate, remove, tag
from tests.registry.conftest import REF, new_local


def rows(home: Path, table: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(home / "catalog.db") as connection:
        found = connection.execute(f"SELECT * FROM {table}").fetchall()
    connection.close()
    return sorted(found, key=repr)


def test_what_is_noted_in_the_file_is_what_a_catalog_writes(local: Registry, digest: Digest, other: Digest) -> None:
    assert local.root is not None
    local.close()
    with new_local(local.root) as registry:
        registry.publish(Ref.parse("new"), other, card=Card("f", "opd", "mit", "zo\u00eb\0", {"seed": "1"}))
        tag(registry, REF, Ref.parse("second"))
        annotate(registry, REF, license="mit")
        remove(registry, Ref.parse("second"))
        assert registry.index._opened is None
        by_file = {table: rows(local.root, table) for table in ("refs", "artifacts")}
        registry.index.rebuild()
        assert {table: rows(local.root, table) for table in by_file} == by_file
        events = registry.index.must_open().events()
        assert [(event.action, event.subject) for event in events[:2]] == [("remove", "second"), ("annotate", str(REF))]
        head = registry.head(REF)
        assert head is not None and events[1].detail == {"digest": digest, "n": head.n}
        assert events[1].at.tzinfo is not None


def damage(home: Path) -> None:
    (home / "catalog.db").write_bytes(b"not a database.." * 4096)


def of_another_registry(home: Path) -> None:
    with sqlite3.connect(home / "catalog.db") as connection:
        connection.execute("UPDATE filled SET source = 'another'")
    connection.close()


def of_another_schema(home: Path) -> None:
    with sqlite3.connect(home / "catalog.db") as connection:
        connection.execute("UPDATE maskreg_schema SET version_num = '9999'")
    connection.close()


@pytest.mark.parametrize(
    "change", [damage, of_another_registry, of_another_schema, lambda home: (home / "catalog.db").unlink()]
)
def test_a_file_that_is_no_sound_index_is_left_to_the_catalog(
    local: Registry, digest: Digest, change: Callable[[Path], None]
) -> None:
    assert local.root is not None
    local.close()
    change(local.root)
    with new_local(local.root) as registry:
        assert registry.index.number(REF) == 0
        assert registry.index.seen_sources("root") == []
        tag(registry, REF, Ref.parse("second"))
        registry.index.saw_source("root", "/a")
        assert (registry.catalog_problem is None) == (registry.index.seen_sources("root") == ["/a"])
        assert "second" in {row.name for row in registry.search(Query()).results}


def test_an_overlap_of_an_artifact_that_comes_back_is_searchable_again(local: Registry, digest: Digest) -> None:
    assert local.root is not None and local.catalog is not None
    local.catalog.record(Measurement(digest, "rlvr_overlap", 0.5, "x"))
    local.catalog.drop_artifact(digest)
    local.close()
    with new_local(local.root) as registry:
        assert registry.index.overlaps(digest)["rlvr_overlap"].value == 0.5
        tag(registry, REF, Ref.parse("second"))
        assert {row.rlvr_overlap for row in registry.search(Query()).results} == {0.5}


def test_sources_are_seen_latest_first(local: Registry) -> None:
    assert local.root is not None
    local.close()
    with new_local(local.root) as registry:
        for path in ("/a", "/b", "/a"):
            registry.index.saw_source("root", path)
        assert registry.index.seen_sources("root") == ["/a", "/b"]
        with open_catalog(registry.index.url) as catalog:
            assert catalog.seen_sources("root") == ["/a", "/b"]

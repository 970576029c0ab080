"""A damaged catalog: names are read from the store and that is said, until it is rebuilt."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.catalog import Measurement, Query, SearchResult
from maskreg.digest import Digest
from maskreg.errors import CorruptError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.push import push
from maskreg.registry.tags import remove, tag
from maskreg.registry.verify import verify
from maskreg.store.entry import entry_key
from tests.registry.conftest import REF, new_local


@pytest.fixture
def home(local: Registry, digest: Digest, other: Digest) -> Path:
    """The home of a registry with two artifacts, several names, and an overlap that only the catalog holds."""
    assert local.root is not None
    for number in range(12):
        card = Card(f"family-{number % 3}", "opd", "apache-2.0", f"the run number {number} " * 9, {"run": str(number)})
        local.publish(Ref.parse(f"team/name-{number}"), other if number % 2 else digest, card=card)
    tag(local, REF, Ref.parse("second"))
    remove(local, Ref.parse("team/name-3"))
    assert local.catalog is not None
    for against, value in (("a", 0.5), ("b", 0.75)):
        local.catalog.record(Measurement(digest, "rlvr_overlap", value, str(Digest.of(against.encode()))))
    local.close()
    return local.root


def listing(home: Path) -> tuple[tuple[SearchResult, ...], bool]:
    """What a new process lists, and whether it says that something is wrong."""
    with new_local(home) as registry:
        search = registry.search(Query(sort="name", descending=False))
        return search.results, bool(search.left_out or registry.catalog_problem)


def spoiled(home: Path, table: str) -> bytes:
    """Overwrite the first page of a table or an index in the catalog's file."""
    path = home / "catalog.db"
    with sqlite3.connect(path) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(data)
    return bytes(data)


def without_overlaps(rows: tuple[SearchResult, ...]) -> list[SearchResult]:
    """What the store knows of results."""
    return [replace(row, rlvr_overlap=None, rlvr_against=None) for row in rows]


def test_a_catalog_whose_rows_are_all_gone_is_rebuilt(home: Path) -> None:
    with sqlite3.connect(home / "catalog.db") as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            connection.execute(f"DELETE FROM {table}")
    connection.close()
    assert listing(home)[1]
    with new_local(home) as registry:
        assert (registry.index.rebuild().refs, registry.catalog_problem) == (14, None)


@pytest.mark.parametrize("table", ["refs", "artifacts", "maskreg_schema"])
def test_a_damaged_catalog_is_said_and_names_come_from_the_store(home: Path, table: str) -> None:
    expected, complains = listing(home)
    assert len(expected) == 13 and not complains
    spoiled(home, table)
    results, complains = listing(home)
    assert complains
    assert without_overlaps(results) == without_overlaps(expected)


def test_a_damaged_catalog_is_reported_and_not_repaired(home: Path) -> None:
    data = spoiled(home, "ix_refs_at")
    for _ in range(2):
        with new_local(home) as registry:
            (damage,) = verify(registry).damaged
            assert (damage.key, next_step(damage.error)) == ("catalog", "maskreg db rebuild")
            assert verify(registry, REF).ok
    assert (home / "catalog.db").read_bytes() == data


def test_a_rebuild_replaces_a_file_that_sqlite_cannot_trust(home: Path) -> None:
    expected, _ = listing(home)
    data = spoiled(home, "ix_refs_at")
    with new_local(home) as registry:
        rebuilt = registry.index.rebuild()
        assert Path(rebuilt.damaged_catalog).read_bytes() == data
        results = registry.search(Query(sort="name", descending=False)).results
        assert without_overlaps(results) == without_overlaps(expected)
        assert registry.catalog_problem is None


def test_a_rebuild_in_place_keeps_what_only_the_catalog_holds(home: Path, digest: Digest) -> None:
    expected, _ = listing(home)
    with sqlite3.connect(home / "catalog.db") as connection:
        connection.execute("UPDATE refs SET family = 'family-9' WHERE name = 'name-1'")
    connection.close()
    with new_local(home) as registry:
        assert registry.index.rebuild().damaged_catalog == ""
        assert registry.search(Query(sort="name", descending=False)).results == expected
        assert registry.index.audit() == []
        kept = registry.index.use(lambda catalog: [row.value for row in catalog.measurements(digest)])
        assert kept == [0.5, 0.75]


# What the index cannot describe


def left_out(registry: Registry) -> list[tuple[str, Digest | None, str]]:
    return [(name.ref, name.digest, name.reason) for name in registry.search(Query(family="unknown")).left_out]


def test_an_artifact_whose_manifest_is_damaged_is_left_out_with_a_warning(
    home: Path, other: Digest, remote: Registry
) -> None:
    key = artifact_prefix(other) + MANIFEST
    with new_local(home) as registry:
        for name in ("name-1", "name-2"):
            push(registry, remote, Ref.parse(f"team/{name}"))
        sound = registry.store.get(key, max_bytes=1 << 20)
        for damaged_registry in (registry, remote):
            damaged_registry.store.put(key, b"{}")
        # A catalog that was filled before still describes the artifact; one that is filled now cannot.
        assert left_out(registry) == []
        registry.index.rebuild()
        fault = f"{key}: its bytes do not match the artifact's digest"
        expected = [(f"team/name-{number}", other, fault) for number in (1, 11, 5, 7, 9)]
        assert left_out(registry) == expected
        assert left_out(remote) == expected[:1]
        with new_local(home) as again:
            assert left_out(again) == expected
        registry.store.put(key, sound)
        assert left_out(registry) == []
        assert len(registry.search(Query()).results) == 13


def test_a_ref_entry_that_is_damaged_is_left_out_with_a_warning(home: Path) -> None:
    ref = Ref.parse("team/name-1")
    key = entry_key(ref, 1)
    with new_local(home) as registry:
        sound = registry.store.get(key, max_bytes=1 << 20)
        registry.store.put(key, sound.replace(b"ada@here", b"eve@here"))
        # The catalog knows an entry of this number.
        assert left_out(registry) == []
        (found,) = registry.search(Query(), read_entries=True).left_out
        assert found.ref == "team/name-1"
        registry.index.rebuild()
        for _ in range(2):
            with new_local(home) as again:
                ((name, digest, reason),) = left_out(again)
                assert (name, digest) == ("team/name-1", None)
                assert "its bytes do not match its seal" in reason
        registry.store.put(key, sound)
        with new_local(home) as again:
            assert left_out(again) == []
            assert "name-1" in {row.name for row in again.search(Query()).results}


# What the store has lost


def test_an_entry_that_the_store_has_lost_is_damage_as_long_as_the_catalog_knows_it(home: Path) -> None:
    ref = Ref.parse("team/name-3")  # its entry 2 removed it, so a search does not name it
    lost = entry_key(ref, 2)
    (home / lost).unlink()
    with new_local(home) as registry:
        (damage,) = verify(registry).damaged
        assert (damage.key, damage.names) == (lost, (str(ref),))
        with pytest.raises(CorruptError) as refused:
            collect(registry, timedelta(), dry_run=True)
        assert refused.value.key == lost
        registry.index.rebuild()
        assert verify(registry).ok

"""A collection of garbage leaves a snapshot of a large log, and an index is filled from it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from maskreg.catalog import Query
from maskreg.digest import Digest
from maskreg.errors import DataError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.garbage.collect import collect
from maskreg.registry.tags import remove, tag
from maskreg.registry.transfer.push import push
from maskreg.store import MemoryStore
from maskreg.store.entry import REFS, entry_key
from maskreg.store.snapshots import SNAPSHOTS
from tests.registry.conftest import REF
from tests.registry.test_following import Noting

NAMES = ("team/b", "team/c")


@pytest.fixture
def store(local: Registry, digest: Digest, monkeypatch: pytest.MonkeyPatch) -> Noting:
    """The store of a registry with three names, which is large."""
    monkeypatch.setattr("maskreg.store.snapshots.MANY", 3)
    store = Noting(MemoryStore())
    other = Registry(store, name="lab", by="ada@here")
    push(local, other, REF)
    for name in NAMES:
        tag(other, REF, Ref.parse(name))
    return store


def indexed(store: Noting, *, full: bool = False) -> set[str]:
    with Registry(store, name="lab", catalog_url="sqlite://") as registry:
        store.prefixes.clear()
        assert not registry.index.rebuild(full=full).damaged
        catalog = registry.catalog
        assert catalog is not None
        return {row.name for row in catalog.search(Query())}


def collected(store: Noting, *, dry_run: bool = False) -> None:
    collect(Registry(store, name="lab"), timedelta(), dry_run=dry_run)


def test_an_index_is_filled_without_listing_the_log(store: Noting) -> None:
    collected(store)
    other = Registry(store, name="lab", by="bob@there")
    remove(other, Ref.parse("team/b"))
    tag(other, REF, Ref.parse("team/d"))
    assert indexed(store) == {REF.name, "c", "d"}
    assert REFS not in store.prefixes


def test_an_entry_that_was_lost_since_is_indexed_unless_the_log_is_listed(store: Noting) -> None:
    collected(store)
    store.delete([entry_key(Ref.parse("team/b"), 1)])
    assert indexed(store) == {REF.name, "b", "c"}
    assert indexed(store, full=True) == {REF.name, "c"}
    assert REFS in store.prefixes


def test_nothing_is_written_for_few_tags_or_by_a_rehearsal(store: Noting, monkeypatch: pytest.MonkeyPatch) -> None:
    collected(store, dry_run=True)
    assert not list(store.list(SNAPSHOTS))
    monkeypatch.setattr("maskreg.store.snapshots.MANY", 4)
    collected(store)
    assert not list(store.list(SNAPSHOTS))
    assert indexed(store) == {REF.name, "b", "c"}


def test_a_listing_that_is_doubted_leaves_no_snapshot(store: Noting) -> None:
    collected(store)
    for name in NAMES:
        store.delete([entry_key(Ref.parse(name), 1)])
    before = [info.key for info in store.list(SNAPSHOTS) if info.key.endswith(".json")]
    with pytest.raises(DataError):
        collected(store)
    assert [info.key for info in store.list(SNAPSHOTS) if info.key.endswith(".json")] == before


def test_a_collection_lists_the_log_whatever_a_snapshot_says(local: Registry, store: Noting) -> None:
    collected(store)
    other = Registry(store, name="lab", by="bob@there")
    for name in (REF, *map(Ref.parse, NAMES)):
        remove(other, name)
    store.prefixes.clear()
    report = collect(other, timedelta())
    assert len(report.collected) == 1
    assert store.prefixes.count(REFS) >= 3

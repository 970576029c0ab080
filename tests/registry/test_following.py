"""A large index follows the journal: it takes in what moved, and the log is not listed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from maskreg.catalog import Query
from maskreg.digest import Digest
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.tags import remove, tag
from maskreg.registry.transfer.push import push
from maskreg.store import MemoryStore, ObjectInfo
from maskreg.store.entry import REFS
from maskreg.store.journal import GENERATIONS, KEPT
from tests.registry.conftest import REF
from tests.store.wrapped import Wrapped


class Noting(Wrapped):
    """Writes down which prefixes are listed."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.prefixes: list[str] = []

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self.prefixes.append(prefix)
        return super().list(prefix)


@pytest.fixture
def other(local: Registry, digest: Digest, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A user who works without a catalog, on a registry with three names; any that has more than one is large."""
    monkeypatch.setattr("maskreg.catalog.catalog.LARGE", 1)
    other = Registry(MemoryStore(), name="lab", by="ada@here")
    push(local, other, REF)
    for name in ("team/b", "team/c"):
        tag(other, REF, Ref.parse(name))
    return other


@pytest.fixture
def store(other: Registry) -> Noting:
    assert isinstance(other.store, MemoryStore)
    return Noting(other.store)


@pytest.fixture
def searched(store: Noting) -> Iterator[Registry]:
    with Registry(store, name="lab", catalog_url="sqlite://", by="bob@there") as registry:
        assert found(registry) == {REF.name, "b", "c"}
        store.prefixes.clear()
        yield registry


def found(registry: Registry) -> set[str]:
    return {row.name for row in registry.search(Query()).results}


def test_what_others_did_is_found_without_listing_the_log(other: Registry, store: Noting, searched: Registry) -> None:
    tag(other, REF, Ref.parse("team/d"))
    remove(other, Ref.parse("team/b"))
    assert found(searched) == {REF.name, "c", "d"}
    assert REFS not in store.prefixes
    store.prefixes.clear()
    assert found(searched) == {REF.name, "c", "d"}
    # Nothing moved since, so no tag is looked at.
    assert not any(prefix.startswith(REFS) for prefix in store.prefixes)


def test_another_artifact_is_indexed_with_its_name(local: Registry, other: Registry, searched: Registry) -> None:
    from tests.artifact.making import pair, write

    assert local.root is not None
    digest = write(local.root, pair(7), parts=("mask",))
    new = Ref.parse("team/new")
    local.publish(new, digest, card=local.live(REF).card)
    push(local, other, new)
    assert found(searched) == {REF.name, "b", "c", "new"}


def test_many_changes_begin_another_generation(
    other: Registry, store: Noting, searched: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskreg.registry.index.searching.LONG", 2)
    for name in ("d", "e", "f"):
        tag(other, REF, Ref.parse(f"team/{name}"))
        assert name in found(searched)
    catalog = searched.catalog
    assert catalog is not None
    position = catalog.followed()
    assert position is not None
    assert position > 1
    assert REFS not in store.prefixes
    assert found(searched) == {REF.name, "b", "c", "d", "e", "f"}


def test_an_index_that_is_far_behind_lists_the_log_once(other: Registry, store: Noting, searched: Registry) -> None:
    tag(other, REF, Ref.parse("team/d"))
    for _ in range(KEPT + 2):
        other.refs.journal.advance(other.refs.has)
    assert found(searched) == {REF.name, "b", "c", "d"}
    assert store.prefixes.count(REFS) == 1
    store.prefixes.clear()
    tag(other, REF, Ref.parse("team/e"))
    assert found(searched) == {REF.name, "b", "c", "d", "e"}
    assert REFS not in store.prefixes


def test_without_a_journal_the_log_is_listed(other: Registry, store: Noting, searched: Registry) -> None:
    tag(other, REF, Ref.parse("team/d"))
    store.delete([info.key for info in store.list(GENERATIONS)])
    tag(other, REF, Ref.parse("team/e"))
    assert {"d", "e"} <= found(searched)


def test_who_may_not_write_follows_all_the_same(
    other: Registry, store: Noting, searched: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    from maskreg.errors import NotAllowedError

    def refuse(*_: object) -> None:
        raise NotAllowedError("read only")

    monkeypatch.setattr("maskreg.registry.index.searching.LONG", 1)
    tag(other, REF, Ref.parse("team/d"))
    monkeypatch.setattr(store, "put", refuse)
    assert "d" in found(searched)


def test_a_result_of_which_more_was_seen_than_there_is_shows_as_lost(searched: Registry) -> None:
    search = searched.index.search(Query(), {Ref.parse("team/b"): 5}, "lab")
    assert {row.name for row in search.results} == {REF.name, "c"}
    assert [(name.ref, name.error.facts["remote"]) for name in search.left_out] == [("team/b", "lab")]

"""The index beside the store: lost, damaged or behind, it comes back, and what cannot be read is said."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from maskreg_cli.next_step import next_step

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.catalog import Measurement, Query, SearchResult
from maskreg.digest import Digest
from maskreg.errors import CorruptError, UnavailableError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.push import push
from maskreg.registry.tags import annotate, remove, tag
from maskreg.registry.verify import verify
from maskreg.settings import Remote, Settings
from maskreg.store.entry import entry_key
from tests.registry.conftest import REF, new_local, root_of
from tests.store.wrapped import Censored

NAMES = {"qwen3-8b-opd", "second", "third"}
SECOND = Ref.parse("second")


@pytest.fixture
def home(local: Registry, digest: Digest) -> Path:
    """The home of a registry with two names, without its catalog."""
    tag(local, REF, SECOND)
    local.close()
    for path in root_of(local).glob("catalog.db*"):
        path.unlink()
    return root_of(local)


def found(registry: Registry) -> set[str]:
    return {row.name for row in registry.search(Query()).results}


def test_a_tag_as_the_first_act_after_the_loss(home: Path) -> None:
    with new_local(home) as again:
        tag(again, REF, Ref.parse("third"))
    with new_local(home) as later:
        assert found(later) == NAMES


def test_filling_that_breaks_off_is_done_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object) -> None:
        raise UnavailableError("the disk is away")

    with new_local(home) as registry:
        with monkeypatch.context() as patched:
            patched.setattr("maskreg.registry.index.digests_in", down)
            assert registry.index.open() is None
        assert not found(registry) - NAMES
        assert isinstance(registry.index.problem, UnavailableError)
        monkeypatch.setattr("maskreg.registry.index.RETRY_S", 0)
        assert registry.index.open() is not None
        assert found(registry) == NAMES - {"third"}


def test_search_without_a_catalog_names_the_damaged_entry(local: Registry, home: Path, remote: Registry) -> None:
    push(local, remote, REF)
    push(local, remote, SECOND)
    key = entry_key(SECOND, 1)
    remote.store.put(key, remote.store.get(key, max_bytes=1 << 20).replace(b"ada@here", b"eve@here"))
    assert found(remote) == {REF.name}
    assert [name.ref for name in remote.search(Query()).left_out] == ["second"]


def test_a_name_whose_writer_died_before_it_indexed_it_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_local(home) as first:
        assert found(first) == NAMES - {"third"}
        with monkeypatch.context() as patched:
            patched.setattr("maskreg.registry.index.Index.note", lambda *_: None)
            tag(first, REF, Ref.parse("third"))
            remove(first, SECOND)
    with new_local(home) as later:
        assert found(later) == {"qwen3-8b-opd", "third"}
        assert later.search(Query()).left_out == ()


def test_a_local_name_that_went_back_is_refused_where_it_is_used(home: Path) -> None:
    with new_local(home) as first:
        assert found(first) == NAMES - {"third"}
        annotate(first, SECOND, {"license": "mit"})
        first.store.delete([entry_key(SECOND, 2)])
    with new_local(home) as later:
        with pytest.raises(CorruptError, match=entry_key(SECOND, 2)):
            later.resolve(SECOND)
        later.index.rebuild()
        assert later.resolve(SECOND).card.license == "apache-2.0"


@pytest.fixture
def lab(home: Path, tmp_path: Path) -> Iterator[Registry]:
    """A remote that has both names, as this machine remembers."""
    settings = Settings(home=home, config_path=tmp_path / "config.toml")
    (tmp_path / "lab").mkdir()
    with new_local(home) as ada, Registry.remote(Remote("lab", f"file://{tmp_path}/lab"), settings) as lab:
        for ref in (REF, SECOND):
            push(ada, lab, ref)
        yield lab


def test_a_list_of_a_remote_leaves_out_what_went_back(lab: Registry) -> None:
    lab.store.delete([entry_key(SECOND, 1)])
    search = lab.search(Query())
    assert {row.name for row in search.results} == {REF.name}
    (name,) = search.left_out
    assert next_step(name.error).startswith("maskreg show second --remote lab --allow-rollback")


def test_an_empty_listing_of_a_remote_is_not_taken_for_an_empty_remote(lab: Registry) -> None:
    # The first listing of names shows nothing, the next one everything.
    hidden = Censored(lab.store, "refs/", lambda key: True, last=1)
    with Registry(hidden, name="lab", witness=lab.witness) as behind:
        search = behind.search(Query())
        assert search.results == ()
        assert {name.ref for name in search.left_out} == {str(REF), "second"}


@pytest.fixture
def full(local: Registry, digest: Digest, other: Digest) -> Path:
    """The home of a registry with two artifacts, several names, and an overlap that only the catalog holds."""
    for number in range(12):
        card = Card(f"family-{number % 3}", "opd", "apache-2.0", f"the run number {number} " * 9, {"run": str(number)})
        local.publish(Ref.parse(f"team/name-{number}"), other if number % 2 else digest, card=card)
    tag(local, REF, SECOND)
    remove(local, Ref.parse("team/name-3"))
    for against, value in (("a", 0.5), ("b", 0.75)):
        local.index.must_open().record(Measurement(digest, "rlvr_overlap", value, str(Digest.of(against.encode()))))
    local.close()
    return root_of(local)


def listing(full: Path) -> tuple[tuple[SearchResult, ...], bool]:
    """What a new process lists, and whether it says that something is wrong."""
    with new_local(full) as registry:
        search = registry.search(Query(sort="name", descending=False))
        return search.results, bool(search.left_out or registry.index.problem)


def sql(home: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(home / "catalog.db")) as connection, connection:
        return connection.execute(statement).fetchall()


def spoiled(full: Path, table: str) -> bytes:
    """Overwrite the first page of a table or an index in the catalog's file."""
    path = full / "catalog.db"
    ((page,),) = sql(full, f"SELECT rootpage FROM sqlite_master WHERE name = '{table}'")
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(data)
    return bytes(data)


def without_overlaps(rows: tuple[SearchResult, ...]) -> list[SearchResult]:
    """What the store knows of results."""
    return [replace(row, rlvr_overlap=None, rlvr_against=None) for row in rows]


@pytest.mark.parametrize("table", ["refs", "artifacts", "maskreg_schema"])
def test_a_damaged_catalog_is_said_and_names_come_from_the_store(full: Path, table: str) -> None:
    expected, complains = listing(full)
    assert len(expected) == 13 and not complains
    spoiled(full, table)
    results, complains = listing(full)
    assert complains
    assert without_overlaps(results) == without_overlaps(expected)


def test_a_damaged_catalog_is_reported_and_not_repaired(full: Path) -> None:
    data = spoiled(full, "ix_refs_at_project")
    for _ in range(2):
        with new_local(full) as registry:
            (damage,) = verify(registry).damaged
            assert (damage.key, next_step(damage.error)) == ("catalog", "maskreg db rebuild")
            assert verify(registry, REF).ok
    assert (full / "catalog.db").read_bytes() == data


def test_a_rebuild_replaces_a_file_that_sqlite_cannot_trust(full: Path) -> None:
    expected, _ = listing(full)
    data = spoiled(full, "ix_refs_at_project")
    with new_local(full) as registry:
        rebuilt = registry.index.rebuild()
        assert Path(rebuilt.damaged_catalog).read_bytes() == data
        results = registry.search(Query(sort="name", descending=False)).results
        assert without_overlaps(results) == without_overlaps(expected)
        assert registry.index.problem is None


def test_a_rebuild_in_place_keeps_what_only_the_catalog_holds(full: Path, digest: Digest) -> None:
    expected, _ = listing(full)
    sql(full, "UPDATE refs SET family = 'family-9' WHERE name = 'name-1'")
    with new_local(full) as registry:
        assert registry.index.rebuild().damaged_catalog == ""
        assert registry.search(Query(sort="name", descending=False)).results == expected
        assert registry.index.find_damage() == []
        kept = registry.index.use(lambda catalog: [row.value for row in catalog.measurements(digest)])
        assert kept == [0.5, 0.75]


# What the index cannot describe


def left_out(registry: Registry) -> list[tuple[str, Digest | None, str]]:
    return [(name.ref, name.digest, name.reason) for name in registry.search(Query(family="unknown")).left_out]


def test_an_artifact_whose_manifest_is_damaged_is_left_out_with_a_warning(
    full: Path, other: Digest, remote: Registry
) -> None:
    key = artifact_prefix(other) + MANIFEST
    with new_local(full) as registry:
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
        with new_local(full) as again:
            assert left_out(again) == expected
        registry.store.put(key, sound)
        assert left_out(registry) == []
        assert len(registry.search(Query()).results) == 13


def test_a_ref_entry_that_is_damaged_is_left_out_with_a_warning(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> NoReturn:
        raise UnavailableError("the disk is away")

    ref = Ref.parse("team/name-1")
    key = entry_key(ref, 1)
    with new_local(full) as registry:
        sound = registry.store.get(key, max_bytes=1 << 20)
        registry.store.put(key, sound.replace(b"ada@here", b"eve@here"))
        # The catalog knows an entry of this number.
        assert left_out(registry) == []
        (found,) = registry.search(Query(), read_entries=True).left_out
        assert found.ref == "team/name-1"
        with monkeypatch.context() as patched, pytest.raises(UnavailableError):
            patched.setattr("maskreg.store.reflog.RefLog.heads", lambda *_: away())
            registry.search(Query(), read_entries=True)
        registry.index.rebuild()
        for _ in range(2):
            with new_local(full) as again:
                assert [left[:2] for left in left_out(again)] == [("team/name-1", None)]
        registry.store.put(key, sound)
        with new_local(full) as again:
            assert left_out(again) == []
            assert "name-1" in {row.name for row in again.search(Query()).results}


def tables(home: Path) -> list[list[object]]:
    return [sorted(sql(home, f"SELECT * FROM {table}"), key=repr) for table in ("refs", "artifacts")]


def test_what_is_noted_in_the_file_is_what_a_catalog_writes(
    local: Registry, digest: Digest, other: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.close()
    with new_local(root_of(local)) as registry:
        monkeypatch.setattr("maskreg.registry.index.open_catalog", pytest.fail)
        registry.publish(Ref.parse("new"), other, card=Card("f", "opd", "mit", "zo\u00eb\0", {"seed": "1"}))
        tag(registry, REF, SECOND)
        annotate(registry, REF, {"license": "mit"})
        remove(registry, SECOND)
        monkeypatch.undo()
        by_file = tables(root_of(local))
        registry.index.rebuild()
        assert tables(root_of(local)) == by_file
        events = registry.index.must_open().events()
        assert [(event.action, event.subject) for event in events[:2]] == [("remove", "second"), ("annotate", str(REF))]
        head = registry.head(REF)
        assert head is not None and events[1].detail == {"digest": digest, "n": head.n}
        assert events[1].at.tzinfo is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda home: (home / "catalog.db").write_bytes(b"not a database.." * 4096),
        lambda home: sql(home, "UPDATE filled SET source = 'another'"),
        lambda home: sql(home, "UPDATE maskreg_schema SET version_num = '9999'"),
        lambda home: (home / "catalog.db").unlink(),
    ],
    ids=["damaged", "of another registry", "of another schema", "gone"],
)
def test_a_file_that_is_no_sound_index_is_left_to_the_catalog(
    local: Registry, digest: Digest, change: Callable[[Path], object]
) -> None:
    local.close()
    change(root_of(local))
    with new_local(root_of(local)) as registry:
        assert registry.index.number(REF) == 0
        assert registry.index.seen_sources("root") == []
        tag(registry, REF, SECOND)
        registry.index.saw_source("root", "/a")
        assert (registry.index.problem is None) == (registry.index.seen_sources("root") == ["/a"])
        assert "second" in {row.name for row in registry.search(Query()).results}


def test_an_entry_that_the_store_has_lost_is_damage_as_long_as_the_catalog_knows_it(full: Path) -> None:
    ref = Ref.parse("team/name-3")  # its entry 2 removed it, so a search does not name it
    lost = entry_key(ref, 2)
    (full / lost).unlink()
    with new_local(full) as registry:
        (damage,) = verify(registry).damaged
        assert (damage.key, damage.names) == (lost, (str(ref),))
        with pytest.raises(CorruptError) as refused:
            collect(registry, timedelta(), dry_run=True)
        assert refused.value.key == lost
        registry.index.rebuild()
        assert verify(registry).ok

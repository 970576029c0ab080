"""A damaged catalog never changes a listing in silence: it is rebuilt from the store, and that is said."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from maskreg.artifact.layout import MANIFEST, artifact_prefix
from maskreg.catalog import Measurement, Query, SearchResult
from maskreg.digest import Digest
from maskreg.errors import CannotCreateError, CorruptError, NotFoundError
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.tags import remove, tag
from maskreg.registry.transfer.push import push
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
        return search.results, bool(search.left_out or registry.index.remarks or registry.catalog_problem)


def damaged(home: Path, whole: bytes, rng: random.Random) -> None:
    """Put one damage into the catalog's file: a bit, a byte, or a run of bytes."""
    data = bytearray(whole)
    # Most of a small file is empty; every other damage hits a byte that says something.
    used = [number for number, byte in enumerate(data) if byte]
    place = rng.choice(used) if rng.random() < 0.5 else rng.randrange(len(data))
    match rng.choice(["bit", "bit", "byte", "run"]):
        case "bit":
            data[place] ^= 1 << rng.randrange(8)
        case "byte":
            data[place] = rng.randrange(256)
        case "run":
            data[place : place + 16] = rng.randbytes(len(data[place : place + 16]))
    (home / "catalog.db").write_bytes(data)


def changed_in_silence(home: Path, attempts: int, seed: int) -> tuple[int, int]:
    """How many of so many damages changed a listing and were not mentioned, and how many were mentioned."""
    whole, rng = (home / "catalog.db").read_bytes(), random.Random(seed)
    expected, complains = listing(home)
    assert len(expected) == 13
    assert not complains
    silent = mentioned = 0
    for _ in range(attempts):
        for path in home.glob("catalog.db*"):
            path.unlink()
        damaged(home, whole, rng)
        results, complains = listing(home)
        silent += results != expected and not complains
        mentioned += complains
        # Only what the catalog alone holds can be lost.
        assert [(row.project, row.name, row.tag, row.digest, row.density) for row in results] == [
            (row.project, row.name, row.tag, row.digest, row.density) for row in expected
        ]
    return silent, mentioned


def test_no_damage_changes_a_listing_in_silence(home: Path) -> None:
    silent, mentioned = changed_in_silence(home, 40, seed=7)
    assert silent == 0
    assert mentioned > 5


CHANGES = {
    "a number": "UPDATE artifacts SET density = density + 0.25",
    "a text": "UPDATE refs SET family = 'family-9' WHERE name = 'name-1'",
    "a name": "UPDATE refs SET name = 'name-99' WHERE name = 'name-1'",
    "a missing row": "DELETE FROM refs WHERE name = 'name-1'",
    "a missing artifact": "DELETE FROM artifacts WHERE rowid = 1",
    "an empty table": "DELETE FROM refs",
    "a row twice": "INSERT INTO refs SELECT project, 'copy', tag, n, digest, deleted, family, method, license, "
    "description, meta, by, at, origin, words, seal FROM refs WHERE name = 'name-1'",
    "a deletion": "UPDATE refs SET deleted = 1 WHERE name = 'name-1'",
    "an overlap": "UPDATE artifacts SET rlvr_overlap = 9.0 WHERE rlvr_overlap IS NOT NULL",
    "a sum": "UPDATE sums SET rows = rows + 1 WHERE \"table\" = 'refs'",
    "no sum": "DELETE FROM sums",
    "a note": 'UPDATE filled SET unread = \'{"refs/team/name-1/latest/00000000000000000001.json": "x"}\'',
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_row_that_changed_is_restored_from_the_store(home: Path, change: str) -> None:
    expected, _ = listing(home)
    with sqlite3.connect(home / "catalog.db") as connection:
        connection.execute(CHANGES[change])
    connection.close()
    assert listing(home) == (expected, True)
    assert listing(home) == (expected, False)
    assert list(home.glob("catalog.db.damaged-*")) == []


def test_a_measurement_that_changed_is_dropped_and_counted(home: Path, digest: Digest) -> None:
    with sqlite3.connect(home / "catalog.db") as connection:
        connection.execute("UPDATE measurements SET value = 99 WHERE id = 2")
    connection.close()
    with new_local(home) as registry:
        kept = registry.index.use(lambda catalog: [row.value for row in catalog.measurements(digest)])
        assert kept == [0.5]
        (remark,) = registry.index.remarks
        assert "1 record was lost that only it held (measurements, events)" in remark
        (value,) = {row.rlvr_overlap for row in registry.search(Query()).results if row.digest == digest}
        assert value == 0.5


def test_a_file_that_sqlite_cannot_trust_is_set_aside(home: Path, digest: Digest) -> None:
    expected, _ = listing(home)
    path = home / "catalog.db"
    with sqlite3.connect(path) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_refs_at'").fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(data)
    with new_local(home) as registry:
        assert registry.search(Query(sort="name", descending=False)).results == expected
        rebuilt = registry.index.rebuild()
        assert Path(rebuilt.aside).read_bytes() == bytes(data)
        assert rebuilt.lost == 0
        assert registry.search(Query(sort="name", descending=False)).results == expected


def test_writing_repairs_too(home: Path) -> None:
    data = bytearray((home / "catalog.db").read_bytes())
    data[:16] = b"not a database.."
    (home / "catalog.db").write_bytes(data)
    with new_local(home) as registry:
        tag(registry, REF, Ref.parse("third"))
        assert len(registry.index.remarks) == 1
        assert "third" in {row.name for row in registry.search(Query()).results}


def test_a_catalog_that_cannot_be_repaired_leaves_the_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CannotCreateError("the disk is read-only")

    expected, _ = listing(home)
    with sqlite3.connect(home / "catalog.db") as connection:
        connection.execute(CHANGES["a text"])
    connection.close()
    monkeypatch.setattr("maskreg.registry.index.index.repairing", refuse)
    with new_local(home) as registry:
        results = registry.search(Query(sort="name", descending=False)).results
        assert [row.family for row in results] == [row.family for row in expected]
        assert isinstance(registry.catalog_problem, CorruptError)


def test_two_processes_repair_once(home: Path) -> None:
    with sqlite3.connect(home / "catalog.db") as connection:
        connection.execute(CHANGES["a text"])
    connection.close()
    with new_local(home) as first, new_local(home) as second:
        assert second.catalog is not None
        first.search(Query())
        second.search(Query())
        assert (len(first.index.remarks), second.index.remarks) == (1, [])


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


def test_the_advice_of_a_name_that_was_left_out(home: Path, other: Digest) -> None:
    shutil.rmtree(home / artifact_prefix(other))
    with new_local(home) as registry:
        registry.index.rebuild()
        (name, *_) = registry.search(Query()).left_out
        assert (name.ref, name.digest) == ("team/name-1", other)
        assert isinstance(name.error, NotFoundError)
        assert name.error.facts == {"artifact": other, "ref": Ref.parse("team/name-1")}

"""The catalog in a SQLite file: it answers as SQLAlchemy does, and leaves to it what it cannot vouch for."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from maskreg_cli.next_step import next_step
from sqlalchemy import JSON, BigInteger, Boolean, Double, Integer

from maskreg.catalog import Catalog, Event, Measurement, Query, Searchable, Snapshot, open_catalog
from maskreg.catalog.local import LocalCatalog
from maskreg.catalog.query import RANGE_KEYS, SORT_KEYS
from maskreg.catalog.sql import SqlCatalog, downgrade, upgrade
from maskreg.catalog.sql.columns import Moment, Words
from maskreg.catalog.sql.models import Base
from maskreg.catalog.tables import connecting
from maskreg.catalog.tables.columns import TABLES, Kind
from maskreg.errors import CorruptError, TryAgainError
from maskreg.ref import Card, Ref
from tests.catalog.conftest import START, digest, entry, manifest

KINDS: dict[type[Any], Kind] = {
    Words: Kind.TEXT,
    BigInteger: Kind.WHOLE,
    Integer: Kind.WHOLE,
    Double: Kind.NUMBER,
    Boolean: Kind.TRUTH,
    Moment: Kind.MOMENT,
    JSON: Kind.DOCUMENT,
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'catalog.db'}"


def fill_index(catalog: Searchable, random: Random) -> None:
    """Refs and artifacts that share many values, so that queries match some of them and sorting has ties."""
    for number in range(12):
        ffn = random.choice([(None, None, None), (0.1, 0.5, 0.9), (0.3, 0.25, 1.0)])
        kind = random.choice(["mask", "delta"])
        made = manifest(nnz=random.choice([100, 250, 900]), ffn=ffn, kind=kind, size=random.choice([1, 4096]))
        if number != 3:  # its ref is not in the index
            catalog.put_artifact(digest(number), made)
    for number in range(20):
        card = Card(random.choice(["qwen3", "Llama é"]), random.choice(["opd", "rlvr", ""]), "mit", "Größer 100%")
        target = random.choice([*map(digest, range(12)), None])
        name, project = random.choice(["a", "b-1", "B"]), random.choice(["lab", "team"])
        row = entry(name, target, project=project, tag=f"t{number}", card=card, minutes=random.choice([0, 5, -3]))
        catalog.put_ref(row)


def fill(catalog: Catalog, random: Random) -> None:
    """The same, and what only a catalog holds."""
    fill_index(catalog, random)
    for value in (0.5, 0.75):
        catalog.record(Measurement(digest(1), "rlvr_overlap", value, str(digest(2)), detail={"x": [1, None]}))
    catalog.record(Measurement(digest(2), "overlap", 1.5, by_group="ffn"))
    catalog.saw_source("root", "/models/é")
    catalog.saw_source("root", "/models/b")
    catalog.saw_source("root", "/models/é")


def queries(random: Random) -> Iterator[Query]:
    yield Query()
    for sort in SORT_KEYS:
        yield Query(sort=sort, descending=random.random() < 0.5)
    for key in RANGE_KEYS:
        for bounds in ((-math.inf, math.inf), (0.25, 0.9)):
            conditions: dict[str, Any] = {key: bounds}
            yield Query(**conditions)
    for text in ("qwen", "GRÖSSER", "100%", "a", "1%0", "_", digest(1).hex[:5], digest(1).short, "qwen team", "\0"):
        yield Query(text=text, limit=random.choice([None, 0, 3]))
    yield Query(family="Llama é", kind="delta", project="lab")
    yield Query(method="opd", tag="t1")
    yield Query(source_root=manifest().source.root, license="mit")


@pytest.mark.parametrize("seed", range(3))
def test_every_answer_is_that_of_sqlalchemy(url: str, seed: int) -> None:
    with open_catalog(url) as catalog, open_catalog("sqlite://") as memory:
        for target in (catalog, memory):
            fill(target, Random(seed))
        catalog.rebuild([], [], registry="uuid", unread={})
        fill(catalog, Random(seed))
        with open_catalog(url) as local, SqlCatalog.open(url) as behind:
            for query in queries(Random(seed)):
                assert local.answer(query) == behind.answer(query)
                # There the database compares and sorts.
                assert local.search(query) == memory.search(query)
            for number in range(12):
                assert local.measurements(digest(number)) == behind.measurements(digest(number))
            for ref in behind.all_numbers():
                assert local.number(ref) == behind.number(ref) == 1
            assert local.number(Ref("lab", "nothing", "latest")) == 0
            assert local.seen_sources("root") == behind.seen_sources("root") == ["/models/é", "/models/b"]
            assert local.filled_from() == behind.filled_from() == "uuid"
            local.saw_source("root", "/models/b")
            assert behind.seen_sources("root") == ["/models/b", "/models/é"]
            assert local.search()
            assert is_alone(local)


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_answers_as_a_database(seed: int) -> None:
    unread = {f"refs/lab/{name}/latest/00000000000000000001.json": "damaged" for name in ("x", "y")}
    snapshot = Snapshot([], [], unread)
    with open_catalog("sqlite://") as memory:
        for index in (snapshot, memory):
            fill_index(index, Random(seed))
        for query in queries(Random(seed)):
            assert snapshot.answer(query)._replace(unread={}) == memory.answer(query)
    assert snapshot.answer(Query()).unread == unread
    snapshot.put_ref(entry("x", digest(1), project="lab", n=2))
    assert [key for key in unread if key in snapshot.answer(Query()).unread] == [key for key in unread if "/y/" in key]


def is_alone(catalog: Catalog) -> bool:
    """Whether a catalog has done without SQLAlchemy."""
    assert isinstance(catalog, LocalCatalog)
    return catalog._behind is None


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE refs SET family = 'another'",
        "UPDATE refs SET at = 'yesterday'",
        "UPDATE refs SET meta = '{'",
        f"UPDATE refs SET meta = '{'[' * 100_000}'",
        "UPDATE artifacts SET density = 'x'",
        "UPDATE artifacts SET exact = 7 WHERE NOT exact",
        "DELETE FROM artifacts",
        "DELETE FROM sums",
        'UPDATE filled SET unread = \'{"x": "y"}\'',
        "DROP TABLE refs",
    ],
)
def test_a_row_that_is_not_as_it_was_written_is_damage(url: str, tmp_path: Path, change: str) -> None:
    with open_catalog(url) as catalog:
        catalog.rebuild([], [], registry="uuid")
        fill(catalog, Random(1))
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as file, file:
        file.execute(change)
    with open_catalog(url) as catalog:
        with pytest.raises(CorruptError) as caught:
            catalog.search()
        assert next_step(caught.value) == "maskreg db rebuild"
        assert not is_alone(catalog)


def test_a_lock_is_waited_for_once(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "BUSY_SECONDS", 0.05)
    with open_catalog(url) as catalog, closing(sqlite3.connect(tmp_path / "catalog.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TryAgainError) as caught:
            catalog.put_artifact(digest(1), manifest())
        assert is_alone(catalog)
        with SqlCatalog.open(url) as behind, pytest.raises(TryAgainError) as expected:
            behind.put_artifact(digest(1), manifest())
        assert (caught.value.message, caught.value.hint) == (expected.value.message, expected.value.hint)
        other.rollback()
        catalog.put_artifact(digest(1), manifest())
        assert catalog.get(digest(1)) and is_alone(catalog)


def test_a_new_file_is_made_without_sqlalchemy_as_the_migrations_make_it(tmp_path: Path) -> None:
    quick, slow = tmp_path / "quick.db", tmp_path / "slow.db"
    with open_catalog(f"sqlite:///{quick}") as catalog:
        assert catalog.search() == []
        assert is_alone(catalog)
    upgrade(f"sqlite:///{slow}")
    assert schema(quick) == schema(slow)
    # The migrations, which name what they change, find everything there.
    downgrade(f"sqlite:///{quick}", "base")
    downgrade(f"sqlite:///{slow}", "base")
    assert schema(quick) == schema(slow)


def schema(path: Path) -> dict[str, object]:
    """Columns, keys and indexes of every table, and the rows that a new file has."""
    with closing(sqlite3.connect(path)) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        result: dict[str, object] = {}
        for name in sorted(names):
            indexes = [row[1:4] for row in file.execute(f'PRAGMA index_list("{name}")')]
            result[name] = {
                "columns": sorted(row[1:] for row in file.execute(f'PRAGMA table_info("{name}")')),
                "indexes": sorted((*index, *indexed(file, index[0])) for index in indexes),
                "rows": sorted(file.execute(f'SELECT * FROM "{name}"')),
            }
        return result


def write(catalog: Catalog, random: Random) -> None:
    """What publishing writes, some of it twice, and with words that a database cannot hold."""
    for _ in range(2):
        fill_index(catalog, random)
    catalog.put_ref(entry("a", None, project="lab", tag="t1", n=3, card=Card("\ud800", "", "", "two\nlines, \0")))
    catalog.put_ref(entry("a", digest(1), project="lab", tag="t1", n=2))
    catalog.log(Event("publish", "lab/a:t1", "ann é", {"n": 3, "of": [1.5, None, "é"]}, at=START))


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, as it is stored."""
    with closing(sqlite3.connect(path)) as file:
        # Rows are numbered in the order of writing.
        return {name: sorted(file.execute(f"SELECT * FROM {name}"), key=repr) for name in TABLES}


@pytest.mark.parametrize("seed", range(2))
def test_rows_are_written_as_sqlalchemy_writes_them(tmp_path: Path, seed: int) -> None:
    quick, slow = tmp_path / "quick.db", tmp_path / "slow.db"
    with open_catalog(f"sqlite:///{quick}") as local, SqlCatalog.open(f"sqlite:///{slow}") as behind:
        write(local, Random(seed))
        write(behind, Random(seed))
        assert is_alone(local)
        for number in range(12):
            assert local.get(digest(number)) == behind.get(digest(number))
        local.check()
    assert content(quick) == content(slow)


def test_an_entry_that_could_not_be_read_leaves_the_list_when_it_is_written(url: str) -> None:
    unread = {f"refs/lab/{name}/latest/00000000000000000001.json": "damaged" for name in ("x", "y")}
    with open_catalog(url) as catalog:
        catalog.rebuild([], [], registry="uuid", unread=unread)
    with open_catalog(url) as catalog:
        catalog.put_ref(entry("x", digest(1), project="lab", n=2))
        assert list(catalog.answer(Query()).unread) == [key for key in unread if "/y/" in key]


def test_a_row_whose_seal_is_wrong_is_not_read(url: str, tmp_path: Path) -> None:
    with open_catalog(url) as catalog:
        catalog.put_artifact(digest(1), manifest())
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as file, file:
        file.execute("UPDATE artifacts SET density = 0.5")
    with open_catalog(url) as catalog, pytest.raises(CorruptError, match="seal"):
        catalog.get(digest(1))


def indexed(file: sqlite3.Connection, index: str) -> list[str]:
    """The columns of an index."""
    return [row[2] for row in file.execute(f'PRAGMA index_info("{index}")')]


def test_the_columns_are_those_of_the_models() -> None:
    of_models = {
        name: {column.name: KINDS[type(column.type)] for column in table.columns}
        for name, table in Base.metadata.tables.items()
    }
    assert of_models == TABLES


def test_a_schema_that_is_behind_is_migrated(url: str) -> None:
    with open_catalog(url) as catalog:
        fill(catalog, Random(2))
        before = catalog.search(), catalog.measurements(digest(1))
    downgrade(url, "0001")
    with open_catalog(url) as catalog:
        assert not is_alone(catalog)
        assert (catalog.search(), catalog.measurements(digest(1))) == before
    with open_catalog(url) as catalog:
        assert is_alone(catalog)


def test_times_keep_their_microseconds(url: str) -> None:
    with open_catalog(url) as catalog:
        catalog.put_artifact(digest(1), manifest())
        catalog.put_ref(entry("a", digest(1)))
        (before,) = catalog.search()
    with open_catalog(url) as catalog:
        (after,) = catalog.search()
        assert is_alone(catalog)
    assert after.at == before.at != datetime.fromtimestamp(0, before.at.tzinfo)
    assert (after.at.microsecond, after.at.tzinfo) == (123456, before.at.tzinfo)

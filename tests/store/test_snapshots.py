"""What snapshots promise: with the journal they show every tag as it is, or they are not used."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.errors import CorruptError
from maskreg.ref import Ref
from maskreg.store import MemoryStore, Store
from maskreg.store.journal import KEPT, Journal
from maskreg.store.reflog import RefLog
from maskreg.store.snapshots import SNAPSHOTS, SnapshotWriter
from tests.store.test_journal import FOREVER, TAGS, Turns, advance, append, deaths, run


def take(store: Store) -> None:
    """What a collection of garbage does."""
    log = RefLog(store)
    writer = SnapshotWriter(store, log.journal.start())
    damaged: list[CorruptError] = []
    for head in log.heads(damaged):
        writer.add(head)
    writer.finish([])


def shown(store: Store) -> dict[Ref, int] | None:
    damaged: list[CorruptError] = []
    heads = RefLog(store).snapshot_heads(damaged)
    numbers = None if heads is None else {head.ref: head.n for head in heads}
    assert not damaged
    return numbers


def records(store: Store) -> list[str]:
    return [info.key for info in store.list(SNAPSHOTS) if info.key.endswith(".json")]


def test_without_a_snapshot_nothing_is_shown(store: Store) -> None:
    append(store, TAGS[0])
    assert shown(store) is None


def test_what_moved_since_is_looked_up(store: Store) -> None:
    append(store, TAGS[0])
    append(store, TAGS[1])
    take(store)
    append(store, TAGS[1])
    append(store, TAGS[2])
    assert shown(store) == {TAGS[0]: 1, TAGS[1]: 2, TAGS[2]: 1}


def test_entries_come_back_byte_for_byte_from_many_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.store.snapshots.PART_BYTES", 1_000)
    for ref in TAGS:
        append(store, ref)
        append(store, ref)
    take(store)
    heads = RefLog(store).snapshot_heads([])
    assert heads is not None
    assert [head.to_bytes() for head in heads] == [head.to_bytes() for head in RefLog(store).heads()]
    assert len(list(store.list(SNAPSHOTS))) == 1 + len(TAGS)


def test_a_tag_that_could_not_be_read_is_looked_at_again(store: Store) -> None:
    append(store, TAGS[0])
    entry = RefLog(store).head(TAGS[0])
    assert entry is not None
    SnapshotWriter(store, RefLog(store).journal.start()).finish([TAGS[0]])
    assert shown(store) == {TAGS[0]: 1}
    store.put(entry.key, b"{}")
    damaged: list[CorruptError] = []
    heads = RefLog(store).snapshot_heads(damaged)
    assert heads is not None
    assert not list(heads)
    assert [error.key for error in damaged] == [entry.key]


@pytest.mark.parametrize("name", ["record", "part"])
@pytest.mark.parametrize("bites", [None, b"", b"?"])
def test_a_damaged_snapshot_does_not_serve(store: Store, name: str, bites: bytes | None) -> None:
    append(store, TAGS[0])
    for turn in range(2):
        before = {info.key for info in store.list(SNAPSHOTS)}
        take(store)
        new = {info.key for info in store.list(SNAPSHOTS)} - before
        (key,) = (key for key in new if key.endswith(".json") == (name == "record"))
        append(store, TAGS[1])
        if bites is None:
            store.delete([key])
        else:
            store.put(key, bites)
        assert shown(store) is None, turn
    take(store)
    assert shown(store) == {TAGS[0]: 1, TAGS[1]: 2}


def test_the_snapshot_before_a_damaged_one_serves(store: Store) -> None:
    append(store, TAGS[0])
    take(store)
    append(store, TAGS[0])
    take(store)
    store.put(max(records(store)), b"?")
    assert shown(store) == {TAGS[0]: 2}


def test_a_snapshot_whose_changes_are_forgotten_does_not_serve(store: Store) -> None:
    append(store, TAGS[0])
    take(store)
    for _ in range(KEPT + 1):
        advance(store)
    assert shown(store) is None
    take(store)
    assert shown(store) == {TAGS[0]: 1}


def test_old_snapshots_are_deleted_and_what_others_are_writing_is_not(store: Store) -> None:
    append(store, TAGS[0])
    store.put(f"{SNAPSHOTS}other/000000.z", b"somebody is about to write a record")
    for _ in range(4):
        take(store)
    assert len(records(store)) == 2
    assert store.head(f"{SNAPSHOTS}other/000000.z") is not None


@settings(max_examples=60, deadline=None)
@given(
    writers=st.lists(st.tuples(st.sampled_from(TAGS), deaths), min_size=1, max_size=3),
    advances=st.lists(deaths, max_size=2),
    takes=st.lists(deaths, min_size=1, max_size=2),
    order=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 12)), max_size=12),
)
def test_a_reader_misses_nothing_that_was_there_before_it_began(
    writers: list[tuple[Ref, int]], advances: list[int], takes: list[int], order: list[tuple[int, int]]
) -> None:
    store = MemoryStore()
    append(store, TAGS[0])
    take(store)
    actors = [Turns(store, lambda seen, ref=ref: append(seen, ref), at) for ref, at in writers]  # type: ignore[misc]
    actors += [Turns(store, advance, at) for at in advances]
    actors += [Turns(store, take, at) for at in takes]
    for number, steps in order:
        run(actors[number % len(actors)], steps)
        # All that is in the log now is shown, however far the others are.
        assert shown(store) == RefLog(store).numbers()
    for actor in actors:
        run(actor)
    assert shown(store) == RefLog(store).numbers()


@pytest.mark.parametrize("at", range(8))
def test_a_writer_that_dies_anywhere_leaves_the_snapshot_before(at: int) -> None:
    store = MemoryStore()
    append(store, TAGS[0])
    take(store)
    append(store, TAGS[1])
    run(Turns(store, take, at))
    assert shown(store) == {TAGS[0]: 1, TAGS[1]: 1}
    append(store, TAGS[1])
    run(Turns(store, take, FOREVER))
    assert shown(store) == {TAGS[0]: 1, TAGS[1]: 2}
    assert Journal(store).start() == 1

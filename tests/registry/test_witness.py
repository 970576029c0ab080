"""What a reader notices of a log that it has seen: nothing that was seen can be taken back or changed silently."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg.digest import Digest
from maskreg.errors import CorruptError, RolledBackError, UnavailableError
from maskreg.ref import Card
from maskreg.registry import Registry
from maskreg.registry.identity import IDENTITY
from maskreg.registry.tags import accept_registry, accept_tag
from maskreg.registry.witness import SEEN
from maskreg.settings import Remote, Settings
from maskreg.store import FileStore, Store
from maskreg.store.entry import entry_key
from tests.registry.meddling import MAX, REF, A, B, C, D, Reader, edit, move
from tests.store.memory import MemoryStore
from tests.store.wrapped import Censored, Wrapped


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    (tmp_path / "lab").mkdir()
    return Remote("lab", str(tmp_path / "lab"))


# One fault after another


def deleted(store: Store) -> None:
    store.delete([entry_key(REF, 3)])


def vanished(store: Store) -> None:
    store.delete([info.key for info in list(store.list("refs/"))])


def forged(store: Store) -> None:
    edit(store, 3, digest=D, by="eve@evil")


def forked(store: Store) -> None:
    store.delete([entry_key(REF, 3)])
    move(store, D)
    move(store, A)


@pytest.mark.parametrize(("meddle", "now"), [(deleted, {B}), (vanished, set()), (forged, {D}), (forked, {D, A})])
def test_a_log_that_does_not_go_on_is_refused(
    remote: Remote, tmp_path: Path, meddle: Callable[[Store], None], now: set[Digest]
) -> None:
    mine = Settings(home=tmp_path / "home", config_path=tmp_path / "config.toml")
    with Registry.remote(remote, mine) as reader, Registry.remote(remote) as stranger:
        for digest in (A, B, C):
            last = move(reader.store, digest)
        assert reader.head(REF) == last
        assert reader.find_damage() == []
        meddle(reader.store)
        for read in (reader.head, reader.live, reader.resolve, reader.history):
            with pytest.raises(RolledBackError) as caught:
                read(REF)
        text = str(caught.value)
        assert caught.value.facts == {"ref": REF, "remote": "lab"}
        assert all(part in text for part in ("ada@here", f"{last.at:%Y-%m-%d %H:%M:%S}"))
        assert {digest for digest in (A, B, C, D) if digest.short in text} == {C, *now}
        assert entry_key(REF, 3) in {error.key for error in reader.find_damage()}
        assert str(caught.value) in {error.message for error in reader.find_damage(REF)}
        # Only who has seen the log can tell, and what was refused can be taken on purpose.
        head = stranger.head(REF)
        assert accept_tag(reader, REF) == text
        assert reader.head(REF) == head
        assert accept_tag(reader, REF) == ""
        assert [error for error in reader.find_damage() if isinstance(error, RolledBackError)] == []


def test_what_this_machine_wrote_is_remembered() -> None:
    store, memory = MemoryStore(), MemoryStore()
    written = Reader(store, memory).append(REF, A, card=Card(), after=None)
    store.delete([written.key])
    with pytest.raises(RolledBackError):
        Reader(store, memory).head(REF)


def test_a_link_that_is_broken_after_what_was_seen() -> None:
    store, memory = MemoryStore(), MemoryStore()
    move(store, A)
    reader = Reader(store, memory)
    reader.head(REF)
    for digest in (B, C):
        move(store, digest)
    edit(store, 2, by="eve@evil")
    with pytest.raises(RolledBackError, match=entry_key(REF, 3)):
        reader.head(REF)


def test_pulls_that_race_never_move_the_memory_back() -> None:
    store, memory = MemoryStore(), MemoryStore()
    entries = [move(store, digest) for digest in (A, B)]
    reader = Reader(store, memory)
    witness = reader.witness
    assert witness is not None
    witness.remember(reader.uuid, entries[1])
    # The slower one looked before entry 2 was written, and is late: its record is created beside.
    memory.put(f"{SEEN}{reader.uuid}/{REF.path}/{1:020d}.json", entries[0].to_bytes())
    assert witness.remembered(reader.uuid, REF) == entries[1]
    witness.remember(reader.uuid, entries[0])
    assert witness.remembered(reader.uuid, REF) == entries[1]


def test_two_readers_who_were_shown_different_entries_notice() -> None:
    one, two, memory = MemoryStore(), MemoryStore(), MemoryStore()
    shown = move(one, A)
    two.put(IDENTITY, one.get(IDENTITY, max_bytes=MAX))
    another = move(two, B)
    first, second = Reader(one, memory), Reader(two, memory)
    assert first.witness is not None
    assert second.witness is not None

    class Late(Wrapped):
        def create(self, key: str, data: bytes) -> bool:
            first.witness.remember(first.uuid, shown)  # type: ignore[union-attr]
            return super().create(key, data)

    second.witness.keep_in(Late(memory))
    with pytest.raises(RolledBackError):
        second.witness.remember(second.uuid, another)


def test_a_list_that_is_behind_is_no_rollback() -> None:
    store, memory = MemoryStore(), MemoryStore()
    move(store, A)
    last = move(store, B)
    Reader(store, memory).head(REF)
    behind = partial(Censored, store, "refs/", last.key.__eq__)
    assert Reader(behind(last=2), memory).head(REF) == last
    with pytest.raises(UnavailableError, match=last.key):
        Reader(behind(), memory).head(REF)


def test_another_registry_at_the_same_place_is_refused() -> None:
    store, memory = MemoryStore(), MemoryStore()
    move(store, A)
    uuid = Reader(store, memory).uuid
    Reader(store, memory).head(REF)
    for key in [info.key for info in store.list("")]:
        store.delete([key])
    for _ in range(2):
        with pytest.raises(RolledBackError, match=uuid):
            Reader(store, memory).head(REF)
        move(store, B)
    assert [error.key for error in Reader(store, memory).find_damage()] == [IDENTITY]
    reader = Reader(store, memory)
    with pytest.raises(RolledBackError) as caught:
        accept_tag(reader, REF)
    assert "maskreg remote check lab --allow-rollback" in next_step(caught.value)
    assert uuid in accept_registry(reader)
    head = reader.head(REF)
    assert head is not None
    assert head.digest == B


def test_a_memory_that_cannot_be_written_is_said_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, not a folder")
    store, notes = MemoryStore(), list[str]()
    entry = move(store, A)
    reader = Reader(store, FileStore(tmp_path / "home"), notes)
    assert reader.head(REF) == entry
    assert reader.head(REF) == entry
    assert len(notes) == 1


def test_a_damaged_memory_says_what_to_remove() -> None:
    store, memory = MemoryStore(), MemoryStore()
    move(store, A)
    reader = Reader(store, memory)
    reader.head(REF)
    for info in list(memory.list(SEEN)):
        before = memory.get(info.key, max_bytes=MAX)
        memory.put(info.key, before.replace(b"ada", b"eve").replace(b"lab", b"bal").replace(b'"uuid":"', b'"uuid":"0'))
        with pytest.raises(CorruptError, match=info.key) as caught:
            Reader(store, memory).head(REF)
        assert not isinstance(caught.value, RolledBackError)
        assert info.key in caught.value.hint
        memory.put(info.key, before)
    assert Reader(store, memory).find_damage() == []

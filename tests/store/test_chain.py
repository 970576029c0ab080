"""What a log of a tag shows after an attack: numbers, gaps, links, strays, and lists that are behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from maskreg.digest import Digest, sealed
from maskreg.document import parse_object
from maskreg.errors import ConflictError, CorruptError, FormatError, NotAllowedError, UnavailableError
from maskreg.limits import LIMITS
from maskreg.ref import Card, Ref
from maskreg.store import FileStore, ObjectInfo, Store
from maskreg.store.chain import removal
from maskreg.store.entry import RefEntry, entry_key
from maskreg.store.reflog import RefLog
from tests.store.memory import MemoryStore
from tests.store.wrapped import Wrapped

REF = Ref.parse("team/qwen3-8b-opd:v3")
A, B, C = (Digest.of(text) for text in (b"a", b"b", b"c"))


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store") if request.param == "file" else MemoryStore()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.store.chain._PAUSE_S", 0)


def move(log: RefLog, digest: Digest | None, *, immutable: bool = False) -> RefEntry:
    return log.append(REF, after=log.head(REF), digest=digest, card=Card(), by="ada", immutable=immutable)


def filled(store: Store) -> list[RefEntry]:
    log = RefLog(store)
    return [move(log, digest) for digest in (A, B, None, C)]


def edit(store: Store, n: int, **changes: object) -> None:
    """Change fields of an entry and seal it anew, as a writer to a store can."""
    key = entry_key(REF, n)
    row = parse_object(store.get(key, max_bytes=1 << 20), key, max_bytes=1 << 20)
    store.put(key, sealed({**row, **changes}))


def test_entries_form_a_chain(store: Store) -> None:
    first, second, third, fourth = filled(store)
    assert [e.previous for e in (first, second, third, fourth)] == [None, first.id, second.id, third.id]
    assert Digest.of(first.payload()) == first.id
    assert RefLog(store).history(REF) == [first, second, third, fourth]
    assert RefLog(store).audit() == RefLog(store).audit(REF) == []


@pytest.mark.parametrize("n", [LIMITS.ref_entries + 1, 10**20 - 1, 0])
def test_a_number_out_of_range_is_damage_and_nothing_is_appended(store: Store, n: int) -> None:
    entries = filled(store)
    log = RefLog(store)
    row = parse_object(entries[0].to_bytes(), "", max_bytes=1 << 20)
    stray = entry_key(REF, n)
    store.put(stray, sealed({**row, "n": n}))
    for fails in (lambda: log.head(REF), lambda: list(log.heads()), lambda: log.history(REF)):
        with pytest.raises(CorruptError, match="not an entry of a tag") as caught:
            fails()
        assert caught.value.key == stray
        assert stray in caught.value.hint
    assert [error.key for error in log.audit()] == [stray]
    with pytest.raises(CorruptError):
        log.append(REF, after=entries[-1], digest=A, card=Card(), by="ada")


@pytest.mark.parametrize("name", ["7.json", "readme.txt", "00000000000000000001.json/x", "1" * 21 + ".json"])
def test_what_is_no_entry_is_damage(store: Store, name: str) -> None:
    other = Ref.parse("other")
    log = RefLog(store)
    log.append(other, after=None, digest=A, card=Card(), by="ada")
    store.put(f"refs/{REF.path}/{name}", b"?")
    with pytest.raises(CorruptError, match="not an entry of a tag"):
        log.head(REF)
    damaged: list[CorruptError] = []
    assert [head.ref for head in log.heads(damaged)] == [other]
    assert [error.key for error in damaged] == [f"refs/{REF.path}/{name}"]


def test_a_missing_entry_is_damage(store: Store) -> None:
    filled(store)
    store.delete([entry_key(REF, 2)])
    log = RefLog(store)
    with pytest.raises(CorruptError, match="is missing, and entry 4 is there") as caught:
        log.head(REF)
    assert caught.value.key == entry_key(REF, 2)
    assert all(entry_key(REF, n) in caught.value.hint for n in (3, 4))
    assert [error.key for error in log.audit()] == [entry_key(REF, 2)]
    assert [entry.n for entry in log.history(REF, [])] == [1, 3, 4]


def test_an_edited_entry_breaks_the_chain_though_it_is_sealed(store: Store) -> None:
    filled(store)
    edit(store, 2, by="eve")
    log = RefLog(store)
    with pytest.raises(CorruptError, match="does not follow from entry 2"):
        log.history(REF)
    assert [error.key for error in log.audit(REF)] == [entry_key(REF, 3)]
    assert log.audit(Ref.parse("other")) == []


def test_an_entry_is_about_a_name_that_can_be_written(store: Store) -> None:
    entry = RefLog(store).append(REF, after=None, digest=A, card=Card(), by="ada")
    row = parse_object(entry.to_bytes(), "", max_bytes=1 << 20)
    for project, name in (("Team", "x"), ("a b", "x"), ("default", "sha256")):
        key = entry_key(Ref(project, name, "v1"), 1)
        with pytest.raises(FormatError):
            RefEntry.parse(key, sealed({**row, "project": project, "name": name, "tag": "v1"}))


# What a writer is told


class Lists(Wrapped):
    """A store whose listings of refs are behind: ``missing`` of them lack the newest entries."""

    def __init__(self, store: Store, behind: int, missing: int) -> None:
        super().__init__(store)
        self.behind = behind
        self.missing = missing

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        infos = list(self.store.list(prefix))
        if prefix.startswith("refs/") and self.missing:
            self.missing -= 1
            infos = infos[: -self.behind]
        return iter(infos)


def test_a_write_that_readers_do_not_see_is_not_reported_as_done(store: Store) -> None:
    *_, last = filled(store)
    stale = RefLog(Lists(store, behind=1, missing=9))
    with pytest.raises(UnavailableError, match="does not list it: its listing is stale") as caught:
        stale.append(REF, after=last, digest=B, card=Card(), by="ada")
    assert entry_key(REF, 5) in str(caught.value)
    lagging = RefLog(Lists(store, behind=1, missing=2))
    head = RefLog(store).head(REF)
    assert lagging.append(REF, after=head, digest=A, card=Card(), by="ada").n == 6


@pytest.mark.parametrize("behind", [1, 4])
def test_an_outdated_list_is_neither_a_conflict_nor_an_empty_tag(store: Store, behind: int) -> None:
    filled(store)
    stale = RefLog(Lists(store, behind=behind, missing=9))
    after = stale.head(REF)
    with pytest.raises(UnavailableError, match="does not list it: its listing is stale"):
        stale.append(REF, after=after, digest=B, card=Card(), by="ada")
    assert [entry.n for entry in RefLog(store).history(REF)] == [1, 2, 3, 4]


def test_a_list_with_holes_is_listed_again(store: Store) -> None:
    class Holes(Wrapped):
        holes = 1

        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            infos = list(super().list(prefix))
            if self.holes:
                self.holes -= 1
                del infos[1:3]
            return iter(infos)

    *_, last = filled(store)
    assert RefLog(Holes(store)).head(REF) == last
    assert RefLog(Holes(store)).audit() == []
    log = RefLog(Holes(store))
    log._store.holes = 99  # type: ignore[attr-defined]
    with pytest.raises(UnavailableError):
        log.head(REF)


def test_nothing_is_appended_to_another_history(store: Store) -> None:
    *_, last = filled(store)
    edit(store, 4, by="eve")
    log = RefLog(store)
    with pytest.raises(CorruptError, match="it was replaced since entry 4 by ada was read"):
        log.append(REF, after=last, digest=B, card=Card(), by="ada")
    head = log.head(REF)
    assert head is not None
    assert (head.n, head.by) == (4, "eve")


# Tags that must not move


def test_an_immutable_tag_stays_where_it_is(store: Store) -> None:
    log = RefLog(store)
    fixed = move(log, A, immutable=True)
    with pytest.raises(NotAllowedError, match=f"immutable: it is at {A.short} since entry 1 by ada"):
        move(log, B)
    with pytest.raises(NotAllowedError):
        move(log, B, immutable=True)
    annotated = log.append(REF, after=fixed, digest=A, card=Card(family="f"), by="bob")
    assert annotated.immutable
    gone = move(log, None)
    assert (gone.immutable, gone.removed) == (True, A)
    with pytest.raises(NotAllowedError, match=f"it was at {A.short} until entry 3 by ada"):
        move(log, B)
    back = move(log, A)
    assert back.immutable
    assert log.audit() == []


def test_a_tag_can_become_immutable_later(store: Store) -> None:
    log = RefLog(store)
    move(log, A)
    fixed = move(log, B, immutable=True)
    assert (fixed.n, fixed.immutable) == (2, True)
    with pytest.raises(NotAllowedError):
        move(log, A)


def test_a_move_of_an_immutable_tag_is_damage(store: Store) -> None:
    log = RefLog(store)
    move(log, A)
    fixed = move(log, B, immutable=True)
    row = parse_object(fixed.to_bytes(), "", max_bytes=1 << 20)
    for changes, said in (({"digest": C}, "moved the immutable tag"), ({"immutable": False}, "does not keep it so")):
        store.put(entry_key(REF, 3), sealed({**row, "n": 3, "previous": fixed.id, **changes}))
        (error,) = log.audit()
        assert said in str(error)
        assert error.key == entry_key(REF, 3)


def test_both_writers_must_want_the_mark(store: Store) -> None:
    log = RefLog(store)
    log.append(REF, after=None, digest=A, card=Card(), by="ada")
    with pytest.raises(ConflictError):
        log.append(REF, after=None, digest=A, card=Card(), by="bob", immutable=True)


@pytest.mark.parametrize("url", ["https://lab.example", "http://127.0.0.1:8470"])
def test_who_reads_through_a_service_is_told_who_can_remove_an_object(url: str) -> None:
    assert removal(url, "refs/a", "refs/b") == f"ask the operator of {url} to remove refs/a and refs/b"
    assert removal("s3://lab/team", "refs/a") == "aws s3 rm s3://lab/team/refs/a"

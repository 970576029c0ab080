"""What the ref log promises, over every store, and what it shows after an attack."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from maskreg import errors
from maskreg.digest import Digest, sealed
from maskreg.document import parse_object
from maskreg.limits import LIMITS
from maskreg.ref import Card, Ref
from maskreg.store import Store
from maskreg.store.entry import RefEntry, entry_key
from maskreg.store.reflog import RefLog
from tests.store.memory import MemoryStore
from tests.store.wrapped import Censored, Wrapped

REF = Ref.parse("team/qwen3-8b-opd:v3")
CARD = Card(family="qwen3-8b", method="opd", meta={"seed": "7"})
A, B, C = (Digest.of(text) for text in (b"a", b"b", b"c"))


def history(log: RefLog, ref: Ref = REF) -> list[RefEntry]:
    head = log.head(ref)
    return log.until(head) if head else []


def digests(log: RefLog) -> set[Digest]:
    return {head.digest for head in log.heads() if head.digest is not None}


def test_a_tag_moves_and_keeps_its_history(store: Store) -> None:
    log = RefLog(store)
    first = log.append(REF, after=None, digest=A, card=CARD, by="ada")
    second = log.append(REF, after=first, digest=B, card=Card(), by="grace", origin="lab")
    assert (first.n, first.digest, first.card, first.by, first.deleted) == (1, A, CARD, "ada", False)
    assert (second.n, second.digest, second.origin) == (2, B, "lab")
    assert first.ref == REF
    assert abs(first.at - datetime.now(UTC)) < timedelta(minutes=5)
    assert log.head(REF) == second
    assert history(log) == [first, second]
    assert store.head("refs/team/qwen3-8b-opd/v3/00000000000000000001.json") is not None


def test_a_deleted_tag_leaves_a_tombstone_and_can_come_back(store: Store) -> None:
    log = RefLog(store)
    first = log.append(REF, after=None, digest=A, card=CARD, by="ada")
    gone = log.append(REF, after=first, digest=None, card=CARD, by="ada")
    assert (gone.deleted, gone.digest, gone.removed, gone.last_digest) == (True, None, A, A)
    assert log.head(REF) == gone
    assert list(log.heads()) == [gone]
    assert digests(log) == set()
    back = log.append(REF, after=gone, digest=A, card=CARD, by="ada")
    assert log.head(REF) == back
    assert digests(log) == {A}


def test_heads_are_the_latest_of_every_tag(store: Store) -> None:
    log = RefLog(store)
    # Names that a listing mixes up when it thinks in folders, or in prefixes without their slash.
    refs = [Ref.parse(text) for text in ("a/b:v1", "a/b:v1-x", "a/b-c:v1", "a-b/c:v1", "ab/c:v1", "b:V1", "b:v1.2")]
    for ref in refs:
        for n in range(3):
            log.append(ref, after=log.head(ref), digest=Digest.of(f"{ref}{n}".encode()), card=Card(), by="ada")
    heads = list(log.heads())
    assert {head.ref: head.n for head in heads} == dict.fromkeys(refs, 3)
    assert [head.key for head in heads] == sorted(head.key for head in heads)
    assert digests(log) == {Digest.of(f"{ref}2".encode()) for ref in refs}
    assert all(len(history(log, ref)) == 3 for ref in refs)


def test_what_a_file_system_leaves_beside_the_entries_is_left_alone(store: Store) -> None:
    log = RefLog(store)
    entry = log.append(REF, after=None, digest=A, card=CARD, by="ada")
    for name in ("refs/README", "refs/team/notes.txt", f"refs/{REF.path}/.DS_Store", f"refs/{REF.path}/.nfs0001"):
        store.put(name, b"?")
    assert log.head(REF) == entry
    assert list(log.heads()) == [entry]
    assert log.find_damage() == []


def test_the_slower_of_two_gets_a_conflict_that_names_the_faster(store: Store) -> None:
    log = RefLog(store)
    first = log.append(REF, after=None, digest=A, card=CARD, by="ada")
    won = log.append(REF, after=first, digest=B, card=CARD, by="grace")
    with pytest.raises(errors.ConflictError) as caught:
        log.append(REF, after=first, digest=C, card=CARD, by="ada")
    said = str(caught.value)
    assert all(text in said for text in ("grace", f"{won.at:%Y-%m-%d %H:%M}", B.short, C.short, "qwen3-8b-opd:v3"))
    with pytest.raises(errors.ConflictError, match=r"grace .*deleted"):
        log.append(REF, after=first, digest=None, card=CARD, by="ada")
    assert len(history(log)) == 2


def test_saying_the_same_is_no_conflict(store: Store) -> None:
    log = RefLog(store)
    first = log.append(REF, after=None, digest=A, card=CARD, by="ada")
    assert log.append(REF, after=None, digest=A, card=CARD, by="grace") == first
    with pytest.raises(errors.ConflictError):
        log.append(REF, after=None, digest=A, card=Card(), by="grace")


def test_of_many_writers_exactly_one_wins_each_number(store: Store) -> None:
    log, writers, rounds = RefLog(store), 8, 2
    start = threading.Barrier(writers, timeout=60)

    def write(i: int) -> list[int]:
        won = []
        for n in range(rounds):
            after = log.head(REF)
            start.wait()
            try:
                entry = log.append(REF, after=after, digest=Digest.of(b"%d" % i), card=Card(), by=f"writer-{i}")
            except errors.ConflictError as conflict:
                assert "writer-" in str(conflict)
                assert f"writer-{i} " not in str(conflict)
            else:
                assert (entry.by, entry.n) == (f"writer-{i}", n + 1)
                won.append(entry.n)
            start.wait()
        return won

    with ThreadPoolExecutor(writers) as pool:
        winners = [n for won in pool.map(write, range(writers)) for n in won]
    assert sorted(winners) == list(range(1, rounds + 1))
    assert [entry.n for entry in history(log)] == list(range(1, rounds + 1))


class LosesAnswers(Wrapped):
    """Writes, and then says once what a lost answer makes of it."""

    def __init__(self, store: Store, answer: Callable[[], bool], *, writes: bool = True) -> None:
        super().__init__(store)
        self.answers = [answer]
        self.writes = writes

    def create(self, key: str, data: bytes) -> bool:
        if not self.answers:
            return super().create(key, data)
        if self.writes:
            super().create(key, data)
        return self.answers.pop()()


def refused() -> bool:
    return False


def unanswered() -> bool:
    raise errors.UnavailableError("no answer")


@pytest.mark.parametrize("answer", [refused, unanswered])
def test_a_lost_answer_is_no_conflict(store: Store, answer: Callable[[], bool]) -> None:
    log = RefLog(LosesAnswers(store, answer))
    entry = log.append(REF, after=None, digest=A, card=CARD, by="ada")
    assert history(log) == [entry]


def test_a_lost_request_is_unavailable_and_wrote_nothing(store: Store) -> None:
    log = RefLog(LosesAnswers(store, unanswered, writes=False))
    with pytest.raises(errors.UnavailableError):
        log.append(REF, after=None, digest=A, card=CARD, by="ada")
    assert log.head(REF) is None


def test_a_lost_answer_to_a_write_that_was_too_late_is_a_conflict(store: Store) -> None:
    RefLog(store).append(REF, after=None, digest=B, card=CARD, by="grace")
    with pytest.raises(errors.ConflictError, match="grace"):
        RefLog(LosesAnswers(store, unanswered)).append(REF, after=None, digest=A, card=CARD, by="ada")


def entry(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "schema": "maskreg.ref-entry/1",
        "n": 1,
        "project": "team",
        "name": "qwen3-8b-opd",
        "tag": "v3",
        "previous": None,
        "digest": str(A),
        "deleted": False,
        "removed": None,
        "immutable": False,
        "card": {},
        "by": "ada",
        "at": "2026-01-02T03:04:05Z",
        "write_id": "w",
        "origin": "",
    }
    fields.update(changes)
    return sealed(fields)


def test_no_flipped_bit_of_an_entry_is_silent() -> None:
    for bit in range(8 * len(entry())):
        data = bytearray(entry())
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(errors.DataError):
            RefEntry.parse(entry_key(REF, 1), bytes(data))


def test_an_entry_reads_what_it_wrote() -> None:
    written = RefEntry(*("team", "a", "v1", 3, A, False, CARD, "ada"), datetime.now(UTC), "w", "lab", previous=B)
    read = RefEntry.parse(written.key, written.to_bytes())
    assert (read, read.id) == (written, written.id)
    later = RefEntry.parse(entry_key(REF, 1), entry(later="unknown"))
    assert later.at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert later.id == Digest.of(later.payload()) != RefEntry.parse(entry_key(REF, 1), entry()).id


@pytest.mark.parametrize(
    "changes",
    [{"n": 2}, {"n": True}, {"n": "1"}, {"project": "other"}, {"name": "other"}, {"tag": "latest"}, {"name": ".."}],
    ids=str,
)
def test_an_entry_that_is_not_what_its_key_says_is_corrupt(changes: dict[str, object]) -> None:
    store = MemoryStore()
    store.put(entry_key(REF, 1), entry(**changes))
    with pytest.raises(errors.CorruptError):
        RefLog(store).head(REF)
    with pytest.raises(errors.CorruptError):
        list(RefLog(store).heads())


@pytest.mark.parametrize(
    "changes",
    [
        *({"schema": "maskreg.ref-entry/2"}, {"schema": None}, {"digest": "sha256:1"}, {"digest": 7}),
        *({"deleted": True}, {"deleted": 0}, {"digest": None}, {"card": None}, {"card": {"family": 1}}),
        *({"by": "a\nb"}, {"by": "\x1b[2J"}, {"by": None}, {"by": "x" * 2000}),
        *({"at": "yesterday"}, {"at": "2026-01-02T03:04:05"}, {"at": "0001-01-01T00:00:00+14:00"}, {"at": 0}),
        *({"write_id": []}, {"origin": "\u202e"}, {"project": 1}, {"previous": str(B)}, {"immutable": None}),
        *({"removed": str(B)}, {"deleted": True, "digest": None}, {"previous": "sha256:1"}),
    ],
    ids=str,
)
def test_an_entry_that_breaks_the_format_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(errors.FormatError):
        RefEntry.parse(entry_key(REF, 1), entry(**changes))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"null", entry()[:-1], entry() + b"x", b"[" * 10_000])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(errors.DataError):
        RefEntry.parse(entry_key(REF, 1), data)


def test_an_unreadable_entry_is_not_written(store: Store) -> None:
    log = RefLog(store)
    with pytest.raises(errors.LimitError):
        log.append(REF, after=None, digest=A, card=Card(description="x" * 300_000), by="ada")
    with pytest.raises(errors.FormatError, match=r": by "):
        log.append(REF, after=None, digest=A, card=CARD, by="a\nb")
    assert list(store.list("")) == []


def test_a_damaged_entry_is_collected_or_raised(store: Store) -> None:
    log = RefLog(store)
    for name in ("a", "b"):
        log.append(Ref.parse(name), after=None, digest=A, card=CARD, by="ada")
    key = entry_key(Ref.parse("a"), 1)
    store.put(key, b"{}")
    damaged: list[errors.CorruptError] = []
    assert [entry.ref.name for entry in log.heads(damaged)] == ["b"]
    assert [error.key for error in damaged] == [key]
    assert [ref.name for ref in log.tags()] == ["a", "b"]
    with pytest.raises(errors.DataError):
        list(log.heads())


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.store.chain.PAUSE_S", 0)


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


def test_entries_form_a_chain(memory: MemoryStore) -> None:
    first, second, third, fourth = filled(memory)
    assert [e.previous for e in (first, second, third, fourth)] == [None, first.id, second.id, third.id]
    assert Digest.of(first.payload()) == first.id
    assert history(RefLog(memory)) == [first, second, third, fourth]
    assert RefLog(memory).find_damage() == RefLog(memory).find_damage(REF) == []


@pytest.mark.parametrize("n", [LIMITS.ref_entries + 1, 10**20 - 1, 0])
def test_a_number_out_of_range_is_damage_and_nothing_is_appended(memory: MemoryStore, n: int) -> None:
    entries = filled(memory)
    log = RefLog(memory)
    row = parse_object(entries[0].to_bytes(), "", max_bytes=1 << 20)
    stray = entry_key(REF, n)
    memory.put(stray, sealed({**row, "n": n}))
    for fails in (lambda: log.head(REF), lambda: list(log.heads()), lambda: history(log)):
        with pytest.raises(errors.CorruptError) as caught:
            fails()
        assert caught.value.key == stray
        assert stray in caught.value.hint
    assert [error.key for error in log.find_damage()] == [stray]
    with pytest.raises(errors.CorruptError):
        log.append(REF, after=entries[-1], digest=A, card=Card(), by="ada")


@pytest.mark.parametrize("name", ["7.json", "readme.txt", "00000000000000000001.json/x", "1" * 21 + ".json"])
def test_what_is_no_entry_is_damage(memory: MemoryStore, name: str) -> None:
    other = Ref.parse("other")
    log = RefLog(memory)
    log.append(other, after=None, digest=A, card=Card(), by="ada")
    memory.put(f"refs/{REF.path}/{name}", b"?")
    with pytest.raises(errors.CorruptError, match=f"refs/{REF.path}/{name}: "):
        log.head(REF)
    damaged: list[errors.CorruptError] = []
    assert [head.ref for head in log.heads(damaged)] == [other]
    assert [error.key for error in damaged] == [f"refs/{REF.path}/{name}"]


def test_a_missing_entry_is_damage(memory: MemoryStore) -> None:
    filled(memory)
    memory.delete([entry_key(REF, 2)])
    log = RefLog(memory)
    with pytest.raises(errors.CorruptError, match=r"\b4\b") as caught:
        log.head(REF)
    assert caught.value.key == entry_key(REF, 2)
    assert all(entry_key(REF, n) in caught.value.hint for n in (3, 4))
    assert [error.key for error in log.find_damage()] == [entry_key(REF, 2)]


def test_an_edited_entry_breaks_the_chain_though_it_is_sealed(memory: MemoryStore) -> None:
    filled(memory)
    edit(memory, 2, by="eve")
    log = RefLog(memory)
    with pytest.raises(errors.CorruptError, match=entry_key(REF, 3)):
        history(log)
    assert [error.key for error in log.find_damage(REF)] == [entry_key(REF, 3)]
    assert log.find_damage(Ref.parse("other")) == []


# What a writer is told


def test_an_entry_is_about_a_name_that_can_be_written(memory: MemoryStore) -> None:
    entry = RefLog(memory).append(REF, after=None, digest=A, card=Card(), by="ada")
    row = parse_object(entry.to_bytes(), "", max_bytes=1 << 20)
    for project, name in (("Team", "x"), ("a b", "x"), ("default", "sha256")):
        key = entry_key(Ref(project, name, "v1"), 1)
        with pytest.raises(errors.FormatError):
            RefEntry.parse(key, sealed({**row, "project": project, "name": name, "tag": "v1"}))


def hiding(store: Store, *numbers: int, times: int = 99) -> RefLog:
    """The log of a store whose first listings lack these entries."""
    return RefLog(Censored(store, "refs/", lambda key: key in {entry_key(REF, n) for n in numbers}, last=times))


def test_a_write_that_readers_do_not_see_is_not_reported_as_done(memory: MemoryStore) -> None:
    *_, last = filled(memory)
    with pytest.raises(errors.UnavailableError, match=entry_key(REF, 5)):
        hiding(memory, 5).append(REF, after=last, digest=B, card=Card(), by="ada")
    head = RefLog(memory).head(REF)
    assert hiding(memory, 6, times=2).append(REF, after=head, digest=A, card=Card(), by="ada").n == 6


@pytest.mark.parametrize("hidden", [(4,), (1, 2, 3, 4)])
def test_an_outdated_list_is_neither_a_conflict_nor_an_empty_tag(memory: MemoryStore, hidden: tuple[int, ...]) -> None:
    filled(memory)
    stale = hiding(memory, *hidden)
    after = stale.head(REF)
    with pytest.raises(errors.UnavailableError, match=f"refs/{REF.path}/"):
        stale.append(REF, after=after, digest=B, card=Card(), by="ada")
    assert [entry.n for entry in history(RefLog(memory))] == [1, 2, 3, 4]


def test_a_list_with_holes_is_listed_again(memory: MemoryStore) -> None:
    *_, last = filled(memory)
    assert hiding(memory, 2, 3, times=1).head(REF) == last
    assert hiding(memory, 2, 3, times=1).find_damage() == []
    with pytest.raises(errors.UnavailableError):
        hiding(memory, 2, 3).head(REF)


def test_nothing_is_appended_to_another_history(memory: MemoryStore) -> None:
    *_, last = filled(memory)
    edit(memory, 4, by="eve")
    log = RefLog(memory)
    with pytest.raises(errors.CorruptError, match=f"{entry_key(REF, 4)}.* ada "):
        log.append(REF, after=last, digest=B, card=Card(), by="ada")
    head = log.head(REF)
    assert head is not None
    assert (head.n, head.by) == (4, "eve")


# Tags that must not move


def test_an_immutable_tag_stays_where_it_is(memory: MemoryStore) -> None:
    log = RefLog(memory)
    fixed = move(log, A, immutable=True)
    with pytest.raises(errors.ImmutableTagError, match=rf"{A.short} .*\b1 .* ada "):
        move(log, B)
    with pytest.raises(errors.NotAllowedError):
        move(log, B, immutable=True)
    annotated = log.append(REF, after=fixed, digest=A, card=Card(family="f"), by="bob")
    assert annotated.immutable
    gone = move(log, None)
    assert (gone.immutable, gone.removed) == (True, A)
    with pytest.raises(errors.ImmutableTagError, match=rf"{A.short} .*\b3 .* ada "):
        move(log, B)
    back = move(log, A)
    assert back.immutable
    assert log.find_damage() == []


def test_a_move_of_an_immutable_tag_is_damage(memory: MemoryStore) -> None:
    log = RefLog(memory)
    move(log, A)
    fixed = move(log, B, immutable=True)
    row = parse_object(fixed.to_bytes(), "", max_bytes=1 << 20)
    for changes, said in (({"digest": C}, "moved the immutable tag"), ({"immutable": False}, "does not keep it so")):
        memory.put(entry_key(REF, 3), sealed({**row, "n": 3, "previous": fixed.id, **changes}))
        (error,) = log.find_damage()
        assert said in str(error)
        assert error.key == entry_key(REF, 3)


def test_both_writers_must_want_the_mark(memory: MemoryStore) -> None:
    log = RefLog(memory)
    log.append(REF, after=None, digest=A, card=Card(), by="ada")
    with pytest.raises(errors.ConflictError):
        log.append(REF, after=None, digest=A, card=Card(), by="bob", immutable=True)

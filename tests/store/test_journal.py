"""What the journal promises: a reader that follows it misses no entry, in whatever order clients go on or die."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskreg.digest import Digest
from maskreg.errors import ConflictError
from maskreg.ref import Card, Ref
from maskreg.store import MemoryStore, ObjectInfo, Store
from maskreg.store.journal import CHANGES, GENERATIONS, KEPT, Journal, lagging
from maskreg.store.reflog import RefLog
from tests.registry.steps import Killed
from tests.store.wrapped import Wrapped

TAGS = [Ref.parse(f"team/run:{letter}") for letter in "abc"]
DIGEST = Digest.of(b"artifact")


def append(store: Store, ref: Ref) -> None:
    log = RefLog(store)
    log.append(ref, after=log.head(ref), digest=DIGEST, card=Card(), by="ada")


def is_there(store: Store) -> Callable[[Ref, int], bool]:
    return lambda ref, n: RefLog(store).peek(ref, n) is not None


def advance(store: Store) -> None:
    Journal(store).advance(is_there(store))


class Follower:
    """A reader: it lists the log once, then follows the journal."""

    def __init__(self) -> None:
        self.position: int | None = None
        self.numbers: dict[Ref, int] = {}

    def begin(self, store: Store) -> None:
        log = RefLog(store)
        position = log.journal.start()
        self.numbers = log.numbers()
        self.position = position

    def follow(self, store: Store) -> None:
        assert self.position is not None
        log = RefLog(store)
        position = log.journal.start()
        changes = log.journal.since(self.position)
        if changes is None:
            self.begin(store)
            return
        for ref in lagging(changes, self.numbers):
            head = log.head(ref)
            if head is not None:
                self.numbers[ref] = head.n
        self.position = position


def test_nothing_was_noted() -> None:
    journal = Journal(MemoryStore())
    assert (journal.latest(), journal.start(), journal.since(0)) == (0, 0, {})


def test_an_entry_is_noted_before_it_is_there(store: Store) -> None:
    append(store, TAGS[0])
    append(store, TAGS[0])
    assert RefLog(store).journal.since(0) == {TAGS[0]: 2}
    assert RefLog(store).journal.start() == 1


def test_a_new_generation_holds_what_came_since(store: Store) -> None:
    append(store, TAGS[0])
    journal = Journal(store)
    second = journal.advance(is_there(store))
    append(store, TAGS[1])
    assert (second, journal.start()) == (2, 2)
    assert journal.since(second) == {TAGS[1]: 1}
    assert journal.since(0) == {TAGS[0]: 1, TAGS[1]: 1}


def test_what_is_not_there_yet_is_carried_over(store: Store) -> None:
    log = RefLog(store)
    entry = log.append(TAGS[0], after=None, digest=DIGEST, card=Card(), by="ada")
    Journal(store).note(entry)
    store.delete([entry.key])
    for _ in range(3):
        generation = log.journal.advance(is_there(store))
    assert log.journal.since(generation) == {TAGS[0]: 1}


def test_a_generation_that_was_only_begun_is_finished(store: Store) -> None:
    append(store, TAGS[0])
    store.put(f"{GENERATIONS}{2:020d}.json", b"{}")
    append(store, TAGS[1])
    assert Journal(store).start() == 1
    assert Journal(store).advance(is_there(store)) == 2
    assert Journal(store).since(2) == {TAGS[1]: 1}


def test_old_generations_are_forgotten_and_readers_are_told(store: Store) -> None:
    for _ in range(KEPT + 2):
        append(store, TAGS[0])
        Journal(store).advance(is_there(store))
    journal = Journal(store)
    assert journal.since(0) is None
    assert journal.since(2) is None
    assert journal.since(journal.start()) == {}
    assert journal.since(journal.start() - 1) == {TAGS[0]: KEPT + 2}
    assert not list(store.list(f"{CHANGES}{1:020d}/"))


def test_a_record_that_comes_back_does_not_make_a_forgotten_generation_whole(store: Store) -> None:
    for _ in range(KEPT + 2):
        append(store, TAGS[0])
        Journal(store).advance(is_there(store))
    # A writer who was stopped in the middle goes on.
    store.put(f"{GENERATIONS}{1:020d}.whole.json", b"{}")
    assert Journal(store).since(1) is None


def test_what_no_client_could_have_written_is_left_alone(store: Store) -> None:
    append(store, TAGS[0])
    for key in ("x.json", "UPPER/case/tag/00000000000000000001.json", "a/b/c/1.json"):
        store.put(f"{CHANGES}{1:020d}/{key}", b"")
    store.put(f"{GENERATIONS}latest.json", b"")
    assert Journal(store).since(0) == {TAGS[0]: 1}


class Turns(Wrapped):
    """A store whose user does one operation whenever it is told to, and dies before operation ``dies_at``."""

    def __init__(self, store: Store, work: Callable[[Store], object], dies_at: int) -> None:
        super().__init__(store)
        self.left = dies_at
        self.work = work
        self.go, self.stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.is_over = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.stopped.acquire()

    def _run(self) -> None:
        try:
            self.work(self)
        except (Killed, ConflictError):
            pass
        finally:
            self.is_over = True
            self.stopped.release()

    def step(self) -> None:
        self.go.release()
        self.stopped.acquire()

    def _turn(self) -> None:
        self.stopped.release()
        self.go.acquire()
        if not self.left:
            raise Killed
        self.left -= 1

    def get(self, key: str, *, max_bytes: int) -> bytes:
        self._turn()
        return super().get(key, max_bytes=max_bytes)

    def head(self, key: str) -> ObjectInfo | None:
        self._turn()
        return super().head(key)

    def put(self, key: str, data: bytes) -> None:
        self._turn()
        super().put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        self._turn()
        return super().create(key, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._turn()
        return iter(list(super().list(prefix)))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._turn()
            super().delete([key])


FOREVER = 10**6
deaths = st.one_of(st.just(FOREVER), st.integers(0, 12))


@settings(max_examples=60, deadline=None)
@given(
    writers=st.lists(st.tuples(st.sampled_from(TAGS), deaths), min_size=1, max_size=4),
    advances=st.lists(deaths, max_size=3),
    follows=st.integers(0, 3),
    order=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 12)), max_size=12),
)
def test_a_follower_misses_nothing(
    writers: list[tuple[Ref, int]], advances: list[int], follows: int, order: list[tuple[int, int]]
) -> None:
    store = MemoryStore()
    append(store, TAGS[0])
    follower = Follower()

    def read(seen: Store) -> None:
        follower.begin(seen)
        for _ in range(follows):
            follower.follow(seen)

    actors = [Turns(store, lambda seen, ref=ref: append(seen, ref), at) for ref, at in writers]  # type: ignore[misc]
    actors += [Turns(store, advance, at) for at in advances]
    actors.append(Turns(store, read, FOREVER))
    for number, steps in order:
        actor = actors[number % len(actors)]
        for _ in range(steps):
            if not actor.is_over:
                actor.step()
    # Who is late goes on in turn, the reader first.
    for actor in reversed(actors):
        while not actor.is_over:
            actor.step()
    follower.follow(store)
    assert follower.numbers == RefLog(store).numbers()


def run(actor: Turns, steps: int = FOREVER) -> None:
    while steps and not actor.is_over:
        actor.step()
        steps -= 1


@pytest.mark.parametrize("advances", [1, 2])
@pytest.mark.parametrize("written", range(12))
def test_a_writer_and_a_new_generation_stopped_anywhere(written: int, advances: int) -> None:
    """The writer goes some steps, then others begin generations, then a reader begins; then they go on in turn."""
    for advanced in (*range(8), FOREVER):
        for dies_at in (0, 2, FOREVER):
            store = MemoryStore()
            append(store, TAGS[0])
            follower = Follower()
            writer = Turns(store, lambda seen: append(seen, TAGS[1]), FOREVER)
            others = [
                Turns(store, lambda seen: Journal(seen).advance(is_there(seen)), FOREVER) for _ in range(advances)
            ]
            run(writer, written)
            for other in others:
                run(other, advanced)
            run(Turns(store, follower.begin, FOREVER))
            for actor in (*others, writer):
                actor.left = dies_at
                run(actor)
            run(Turns(store, follower.follow, FOREVER))
            Journal(store).advance(is_there(store))
            follower.follow(store)
            assert follower.numbers == RefLog(store).numbers()


@pytest.mark.parametrize("at", range(14))
def test_a_death_anywhere_hides_nothing(at: int) -> None:
    store = MemoryStore()
    append(store, TAGS[0])
    follower = Follower()
    follower.begin(store)
    for work in (advance, lambda seen: append(seen, TAGS[1])):
        actor = Turns(store, work, at)
        while not actor.is_over:
            actor.step()
    append(store, TAGS[2])
    follower.follow(store)
    assert follower.numbers == RefLog(store).numbers()

"""Push, publish and garbage collection at the same time: every step of one against all of the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from maskreg.artifact.layout import ARTIFACTS, artifact_prefix
from maskreg.digest import Digest
from maskreg.errors import MaskregError, NotFoundError, TryAgainError, UnavailableError
from maskreg.registry import Registry
from maskreg.registry.collect import Garbage, collect
from maskreg.registry.push import Pushed, push
from maskreg.registry.settle import LIFE, MARKERS, RUNS, marker_prefix, this_process
from maskreg.registry.tags import remove, restore
from maskreg.registry.verify import verify
from maskreg.store import ObjectInfo, Store
from maskreg.store.entry import NAMES
from tests.artifact.making import pair, write
from tests.registry.conftest import CARD, REF, Heard, new_local, over
from tests.store.memory import MemoryStore
from tests.store.wrapped import Censored, Killed, Steps

NOW = timedelta(0)


@pytest.fixture
def here(made: tuple[Path, Digest]) -> Iterator[Registry]:
    with new_local(made[0]) as registry:
        registry.publish(REF, made[1], card=CARD)
        yield registry


def do_push(here: Registry, store: Store) -> Pushed:
    return push(here, over(store), REF, jobs=1)


def do_gc(store: Store, grace: timedelta = NOW) -> Garbage:
    # The protocol has to hold by itself, also where the first push is still on its way and no name is there.
    return collect(over(store), grace, trust_listing=True)


def expire_markers(store: MemoryStore) -> None:
    """Time goes by for collections that died on other machines."""
    for info in list(store.list(RUNS)):
        data, modified = store.objects[info.key]
        store.objects[info.key] = data, modified - 2 * LIFE


def assert_sound(store: Store) -> None:
    """Every live ref points to an artifact all of whose objects are there and hash."""
    registry = over(store)
    assert verify(registry).damaged == ()
    for entry in registry.refs.heads():
        if entry.digest is not None:
            assert registry.artifact(entry.digest).present()


def count(work: Callable[[Store], object], store: Store) -> int:
    steps = Steps(store)
    work(steps)
    return steps.done


@pytest.mark.parametrize("k", range(12))
def test_a_collection_at_several_steps_of_a_push(here: Registry, k: int) -> None:
    store = MemoryStore()
    seen = [0]

    def often() -> None:
        seen[0] += 1
        do_gc(store)
        steps.at += 5 + k

    steps = Steps(store, at=k, then=often)
    with suppress(TryAgainError):
        do_push(here, steps)
        assert_sound(store)
    do_push(here, store)
    assert_sound(store)
    assert seen[0] > 1


def test_a_push_killed_at_every_step_is_completed_by_the_next_or_collected(here: Registry) -> None:
    total = count(lambda s: do_push(here, s), MemoryStore())
    whole = do_push(here, MemoryStore())
    for k, collects in product(range(total), (False, True)):
        store = MemoryStore()
        with pytest.raises(Killed):
            do_push(here, Steps(store, at=k, dies=True))
        assert_names_hold(store)
        if collects:
            do_gc(store)
            assert_sound(store)
            assert bool(list(store.list("artifacts/"))) == bool(list(over(store).refs.heads()))
        again = do_push(here, store)
        assert again.reused_bytes + again.sent_bytes == whole.sent_bytes
        assert_sound(store)


def test_a_collection_killed_at_every_step_is_completed_by_the_next(here: Registry) -> None:
    total = count(do_gc, orphan(here))
    for k in range(total):
        store = orphan(here)
        with pytest.raises(Killed):
            do_gc(Steps(store, at=k, dies=True))
        do_gc(store)
        assert not list(store.list("artifacts/"))
        expire_markers(store)
        do_push(here, store)
        do_gc(store)
        assert_sound(store)
        assert not list(store.list(MARKERS))


def test_a_push_after_a_collection_was_killed_waits_until_the_marker_expires(here: Registry) -> None:
    blocked, heard = 0, Heard()
    for k in range(count(do_gc, orphan(here))):
        store = orphan(here)
        with pytest.raises(Killed):
            do_gc(Steps(store, at=k, dies=True))
        try:
            push(here, over(store), REF, jobs=1, progress=heard)
        except TryAgainError:
            blocked += 1
            assert heard.labels[-1].startswith("wait")
            assert list(store.list(MARKERS))
            expire_markers(store)
            do_push(here, store)
        assert_sound(store)
        assert not list(store.list(MARKERS))
    assert blocked > 5


def test_a_collection_that_was_killed_here_leaves_nothing_to_the_next(
    here: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskreg.registry.settle.IN_FLIGHT_S", 0)
    total = count(do_gc, orphan(here))
    marked = 0
    for k in range(total):
        for again in (do_gc, lambda store: do_push(here, store)):
            store = orphan(here)
            with monkeypatch.context() as patch, pytest.raises(Killed):
                ended = {**this_process(), "pid": 2**22 + 1}
                patch.setattr("maskreg.registry.settle.this_process", lambda ended=ended: ended)
                do_gc(Steps(store, at=k, dies=True))
            marked += bool(list(store.list(MARKERS)))
            again(store)
            assert not list(store.list(MARKERS))
            if again is do_gc:
                assert not list(store.list("artifacts/"))
                assert not list(store.list(RUNS))
                assert not list(store.list(NAMES))
            do_push(here, store)
            assert_sound(store)
    assert marked > 10


def test_two_collections_do_not_lift_each_others_marker(here: Registry, made: tuple[Path, Digest]) -> None:
    total = count(do_gc, orphan(here))
    for k in range(total):
        store = orphan(here)

        def other_then_push(store: MemoryStore = store) -> None:
            do_gc(store)
            with suppress(TryAgainError):
                do_push(here, store)

        do_gc(Steps(store, at=k, then=other_then_push))
        if live(store):
            assert_sound(store)


@pytest.fixture
def awake(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clocks of this machine, to be moved."""
    awake = [0.0]
    monkeypatch.setattr("maskreg.registry.settle.clocks", lambda: (awake[0], awake[0]))
    return awake


def test_a_collection_that_slept_past_its_marker_deletes_nothing_more(
    here: Registry, made: tuple[Path, Digest], awake: list[float]
) -> None:
    store = orphan(here)

    class Sleeps(Steps):
        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            # The last look before deleting; then the lid is closed.
            if prefix == artifact_prefix(made[1]):
                awake[0] += LIFE.total_seconds()
            return super().list(prefix)

    before = list(store.list("artifacts/"))
    report = do_gc(Sleeps(store))
    assert (report.collected, report.spared, report.overtaken) == ((), (made[1],), ())
    assert list(store.list("artifacts/")) == before
    assert not list(store.list(MARKERS))


def test_a_collection_that_slept_between_the_check_and_the_request_says_so(
    here: Registry, made: tuple[Path, Digest], awake: list[float]
) -> None:
    store = orphan(here)

    class Sleeps(Steps):
        def delete(self, keys: Iterable[str]) -> None:
            keys = list(keys)
            if artifact_prefix(made[1]) + "manifest.json" in keys:
                awake[0] += LIFE.total_seconds()
                expire_markers(store)
                do_push(here, store)
            super().delete(keys)

    report = do_gc(Sleeps(store))
    assert (report.collected, report.overtaken) == ((), (made[1],))
    # Nothing but that one request was sent: the manifest, which a push writes again.
    assert do_push(here, store).sent_objects == 0
    assert_sound(store)


def test_a_wrong_size_on_the_remote_is_sent_again(here: Registry, made: tuple[Path, Digest]) -> None:
    store = MemoryStore()
    do_push(here, store)
    victim = artifact_prefix(made[1]) + "tensors.json"
    store.put(victim, b"short")
    pushed = do_push(here, store)
    assert pushed.sent_objects == 1
    assert_sound(store)


class Puts(Censored):
    """Counts what is written."""

    puts = 0

    def put(self, key: str, data: bytes) -> None:
        self.puts += 1
        super().put(key, data)


def behind(store: Store, *, last: int) -> Puts:
    """A store that does not list the objects of artifacts, up to a listing of that number."""
    return Puts(store, ARTIFACTS, lambda key: True, last=last)


def test_a_push_looks_again_where_lists_are_behind(here: Registry) -> None:
    usual = behind(MemoryStore(), last=0)
    do_push(here, usual)
    slow = behind(MemoryStore(), last=4)
    do_push(here, slow)
    assert slow.puts == usual.puts  # nothing is sent twice
    assert_sound(slow.store)


@pytest.mark.parametrize("do", [do_push, lambda here, store: restore(over(store), REF)], ids=["push", "restore"])
def test_a_push_that_never_sees_its_objects_blames_the_lists(
    here: Registry, do: Callable[[Registry, Store], object]
) -> None:
    store = orphan(here)
    with pytest.raises(UnavailableError, match=r"/manifest\.json"):
        do(here, behind(store, last=10**9))
    assert not live(store)


def test_a_push_whose_objects_are_deleted_under_it_says_whether_a_collection_does_it(
    here: Registry, made: tuple[Path, Digest]
) -> None:
    class Loses(Steps):
        def put(self, key: str, data: bytes) -> None:
            super().put(key, data)
            self.store.delete([artifact_prefix(made[1]) + "tensors.json"])

    with pytest.raises(TryAgainError, check=lambda error: not error.facts["marked"]):
        do_push(here, Loses(MemoryStore()))

    class Collects(Loses):
        def put(self, key: str, data: bytes) -> None:
            super().put(key, data)
            if key.endswith("/manifest.json"):
                self.store.put(marker_prefix(made[1]) + "run", b"")

    with pytest.raises(TryAgainError, check=lambda error: error.facts["marked"] is True):
        do_push(here, Collects(MemoryStore()))


FOREVER = 10**9


class Gate(Steps):
    """Stops before operation ``at`` until it is let go on; dies at operation ``dies_at``."""

    def __init__(self, store: Store, at: int, dies_at: int = FOREVER) -> None:
        super().__init__(store, at=at)
        self.dies_at = dies_at
        self.go = threading.Event()
        self.stopped = threading.Event()

    def _step(self) -> None:
        number, self.done = self.done, self.done + 1
        if number == self.at:
            self.stopped.set()
            self.go.wait()
        if number >= self.dies_at:
            raise Killed


class Side:
    """One of the two, on a thread of its own."""

    def __init__(self, gate: Gate, work: Callable[[Store], object]) -> None:
        self.gate = gate
        self.work = work
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.work(self.gate)
        except (MaskregError, Killed) as error:
            self.error = error
        finally:
            self.gate.stopped.set()

    def start(self) -> None:
        self.thread.start()
        self.gate.stopped.wait()

    def finish(self) -> None:
        self.gate.go.set()
        self.thread.join()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry with the smallest artifact there is."""
    root: Path = tmp_path_factory.mktemp("small")
    digest = write(root, {"w": pair()["scale"]}, parts=("mask",))
    with new_local(root) as registry:
        registry.publish(REF, digest, card=CARD)
        yield registry


def orphan(here: Registry) -> MemoryStore:
    """A remote with an artifact that lost its name weeks ago."""
    store = MemoryStore()
    do_push(here, store)
    remove(over(store), REF)
    for key, (data, modified) in list(store.objects.items()):
        if not key.startswith("refs/"):
            store.objects[key] = data, modified - timedelta(days=20)
    return store


def without_name(here: Registry) -> MemoryStore:
    store = orphan(here)
    store.delete([info.key for info in store.list("refs/")])
    return store


def live(store: Store) -> list[Digest]:
    return [entry.digest for entry in over(store).refs.heads() if entry.digest]


def assert_names_hold(store: Store) -> None:
    """No name points to an artifact that is not whole; unnamed pieces can lie about."""
    for entry in over(store).refs.heads():
        if entry.digest is not None:
            assert verify(over(store), entry.ref).damaged == ()


def complete(here: Registry, store: MemoryStore) -> None:
    """Later the markers of the dead are void, and the same command works."""
    expire_markers(store)
    do_push(here, store)
    assert live(store)
    assert_names_hold(store)


def beside(first: Gate, work: Callable[[Store], object], other: Gate, other_work: Callable[[Store], object]) -> Any:
    """Each goes to its gate, then the first to its end, then the other; returns their errors."""
    sides = Side(first, work), Side(other, other_work)
    for side in sides:
        side.start()
    for side in sides:
        side.finish()
    return [side.error for side in sides]


@pytest.mark.parametrize("grace", [timedelta(0), timedelta(days=7)], ids=["no grace", "a week"])
def test_a_push_that_says_it_worked_did(small: Registry, grace: timedelta) -> None:
    pushes, collects = partial(do_push, small), partial(do_gc, grace=grace)
    k_end = count(pushes, without_name(small))
    j_end = count(collects, without_name(small))
    outcomes = set()
    for k in range(k_end):
        for j in range(k % 11, j_end, 11):
            store = without_name(small)
            pushing, collecting = beside(Gate(store, k), pushes, Gate(store, j), collects)
            assert collecting is None
            assert pushing is None or isinstance(pushing, TryAgainError)
            if pushing is None:
                assert live(store), (k, j)
                assert_names_hold(store)
            complete(small, store)
            outcomes.add(type(pushing))
    assert outcomes == {type(None), TryAgainError}


def test_no_killed_process_leaves_a_name_without_its_artifact(small: Registry) -> None:
    pushes, collects = partial(do_push, small), partial(do_gc, grace=timedelta(days=7))
    k_end = count(pushes, without_name(small))
    decided = count(collects, without_name(small)) - len(list(without_name(small).list("artifacts/")))
    for k in range(k_end):
        for j in range(decided + 2):
            for dies_at in range(k + (k + j) % 11, k_end, 11):
                store = without_name(small)
                pushing, _ = beside(Gate(store, k, dies_at), pushes, Gate(store, j), collects)
                assert isinstance(pushing, (Killed, TryAgainError))
                assert_names_hold(store)


def test_a_restore_beside_a_collection(small: Registry) -> None:
    restores = lambda store: restore(over(store), REF)  # noqa: E731
    k_end = count(restores, orphan(small))
    # One delete is like another.
    j_end = count(do_gc, orphan(small)) - len(list(orphan(small).list("artifacts/"))) + 2
    for k in range(k_end):
        for j in range(k % 11, j_end, 11):
            store = orphan(small)
            restoring, _ = beside(Gate(store, k), restores, Gate(store, j), do_gc)
            if restoring is None:
                assert live(store), (k, j)
                assert_names_hold(store)
            else:
                assert isinstance(restoring, (TryAgainError, NotFoundError))
            complete(small, store)

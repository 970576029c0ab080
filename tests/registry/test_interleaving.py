"""A push and a collection, both stopped in the middle: every second pair of places, as on a chessboard, and of deaths.

The push runs for k operations, then the collection for j, then the push to its end (or its death), then the
collection to its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from maskreg.digest import Digest
from maskreg.errors import MaskregError, NotFoundError, TryAgainError
from maskreg.registry import Registry
from maskreg.registry.collect import collect
from maskreg.registry.push import push
from maskreg.registry.settle import LIFE, RUNS
from maskreg.registry.tags import remove, restore
from maskreg.registry.verify import verify
from maskreg.store import Store
from tests.registry.conftest import CARD, REF, new_local
from tests.registry.steps import Killed, Steps
from tests.store.memory import MemoryStore

FOREVER = 10**9


class Gate(Steps):
    """Stops before operation ``at`` until it is let go on; dies at operation ``dies_at``."""

    def __init__(self, inner: Store, at: int, dies_at: int = FOREVER) -> None:
        super().__init__(inner, at=at)
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
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry with the smallest artifact there is."""
    from tests.artifact.making import pair, write

    root: Path = tmp_path_factory.mktemp("small")
    digest = write(root, {"w": pair()["scale"]}, parts=("mask",))
    with new_local(root) as registry:
        registry.publish(REF, digest, card=CARD)
        yield registry


def over(store: Store) -> Registry:
    registry = Registry(store, name="lab", by="ada@here")
    registry.patience_s = 0
    return registry


def orphan(here: Registry) -> MemoryStore:
    """A remote with an artifact that lost its name weeks ago."""
    store = MemoryStore()
    push(here, over(store), REF, jobs=1)
    remove(over(store), REF)
    for key, (data, modified) in list(store._objects.items()):
        if not key.startswith("refs/"):
            store._objects[key] = data, modified - timedelta(days=20)
    return store


def without_name(here: Registry) -> MemoryStore:
    store = orphan(here)
    store.delete([info.key for info in store.list("refs/")])
    return store


def count(work: Callable[[Store], object], store: Store) -> int:
    steps = Steps(store)
    work(steps)
    return steps.done


def live(store: Store) -> list[Digest]:
    return [entry.digest for entry in over(store).refs.heads() if entry.digest]


def assert_names_hold(store: Store) -> None:
    for entry in over(store).refs.heads():
        if entry.digest is not None:
            assert verify(over(store), entry.ref).damaged == ()


def complete(here: Registry, store: MemoryStore) -> None:
    """Later the markers of the dead are void, and the same command works."""
    for info in list(store.list(RUNS)):
        data, modified = store._objects[info.key]
        store._objects[info.key] = data, modified - 2 * LIFE
    push(here, over(store), REF, jobs=1)
    assert live(store)
    assert_names_hold(store)


@pytest.mark.parametrize("grace", [timedelta(0), timedelta(days=7)], ids=["no grace", "a week"])
def test_a_push_that_says_it_worked_did(here: Registry, grace: timedelta) -> None:
    pushes = lambda store: push(here, over(store), REF, jobs=1)  # noqa: E731
    collects = lambda store: collect(over(store), grace, trust_listing=True)  # noqa: E731
    k_end = count(pushes, without_name(here))
    j_end = count(collects, without_name(here))
    outcomes = set()
    for k in range(k_end):
        for j in range(k % 2, j_end, 2):
            store = without_name(here)
            pushing, collecting = Side(Gate(store, k), pushes), Side(Gate(store, j), collects)
            for side in (pushing, collecting):
                side.start()
            pushing.finish()
            collecting.finish()
            assert collecting.error is None
            assert pushing.error is None or isinstance(pushing.error, TryAgainError)
            if pushing.error is None:
                assert live(store), (k, j)
                assert_names_hold(store)
            complete(here, store)
            outcomes.add(type(pushing.error))
    assert outcomes == {type(None), TryAgainError}


def test_no_killed_process_leaves_a_name_without_its_artifact(here: Registry) -> None:
    week = timedelta(days=7)
    pushes = lambda store: push(here, over(store), REF, jobs=1)  # noqa: E731
    collects = lambda store: collect(over(store), week, trust_listing=True)  # noqa: E731
    k_end = count(pushes, without_name(here))
    decided = count(collects, without_name(here)) - len(list(without_name(here).list("artifacts/")))
    for k in range(k_end):
        for j in range(decided + 2):
            for dies_at in range(k + j % 2, k_end, 2):
                store = without_name(here)
                pushing = Side(Gate(store, k, dies_at), pushes)
                collecting = Side(Gate(store, j), collects)
                for side in (pushing, collecting):
                    side.start()
                pushing.finish()
                assert isinstance(pushing.error, (Killed, TryAgainError))
                collecting.finish()
                assert_names_hold(store)


def test_a_restore_beside_a_collection(here: Registry) -> None:
    restores = lambda store: restore(over(store), REF)  # noqa: E731
    collects = lambda store: collect(over(store), timedelta(0), trust_listing=True)  # noqa: E731
    k_end = count(restores, orphan(here))
    # One delete is like another.
    j_end = count(collects, orphan(here)) - len(list(orphan(here).list("artifacts/"))) + 2
    for k in range(k_end):
        for j in range(k % 2, j_end, 2):
            store = orphan(here)
            restoring, collecting = Side(Gate(store, k), restores), Side(Gate(store, j), collects)
            for side in (restoring, collecting):
                side.start()
            restoring.finish()
            collecting.finish()
            if restoring.error is None:
                assert live(store), (k, j)
                assert_names_hold(store)
            else:
                assert isinstance(restoring.error, (TryAgainError, NotFoundError))
            complete(here, store)

"""A push into a store whose listing is stale, or whose objects disappear: what it says is to blame."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from maskreg.artifact.layout import ARTIFACTS, artifact_prefix
from maskreg.digest import Digest
from maskreg.errors import TryAgainError, UnavailableError
from maskreg.registry import Registry
from maskreg.registry.settle import Run, marker_prefix
from maskreg.registry.tags import restore
from maskreg.store import Store
from tests.registry.conftest import REF
from tests.registry.steps import Steps
from tests.registry.test_settling import assert_sound, do_push, here, orphan, over
from tests.store.memory import MemoryStore
from tests.store.wrapped import Censored

__all__ = ["here"]


class Puts(Censored):
    """Counts what is written."""

    puts = 0

    def put(self, key: str, data: bytes) -> None:
        self.puts += 1
        super().put(key, data)


def behind(store: Store, *, last: int) -> Puts:
    """A store that does not list the objects of artifacts, up to a listing of that number."""
    return Puts(store, ARTIFACTS, lambda key: True, last=last)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.store.chain._PAUSE_S", 0)


@pytest.mark.usefixtures("quick")
def test_a_push_looks_again_where_lists_are_behind(here: Registry) -> None:
    usual = behind(MemoryStore(), last=0)
    do_push(here, usual)
    slow = behind(MemoryStore(), last=4)
    do_push(here, slow)
    assert slow.puts == usual.puts  # nothing is sent twice
    assert_sound(slow.store)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("do", [do_push, lambda here, store: restore(over(store), REF)], ids=["push", "restore"])
def test_a_push_that_never_sees_its_objects_blames_the_lists(
    here: Registry, do: Callable[[Registry, Store], object]
) -> None:
    store = orphan(here)
    with pytest.raises(UnavailableError, match="does not list it: its listing is stale"):
        do(here, behind(store, last=10**9))
    assert not [entry for entry in over(store).refs.heads() if entry.digest]


def test_a_push_whose_objects_are_deleted_under_it_says_whether_a_collection_does_it(
    here: Registry, made: tuple[Path, Digest]
) -> None:
    class Loses(Steps):
        def put(self, key: str, data: bytes) -> None:
            super().put(key, data)
            self.inner.delete([artifact_prefix(made[1]) + "tensors.json"])

    with pytest.raises(TryAgainError, match="no garbage collection has marked them"):
        do_push(here, Loses(MemoryStore()))

    class Collects(Loses):
        def put(self, key: str, data: bytes) -> None:
            super().put(key, data)
            if key.endswith("/manifest.json"):
                self.inner.put(marker_prefix(made[1]) + "run", b"")

    with pytest.raises(TryAgainError, match="a garbage collection is running"):
        do_push(here, Collects(MemoryStore()))


def test_a_push_names_the_collection_that_it_waits_for(here: Registry, made: tuple[Path, Digest]) -> None:
    store = MemoryStore()
    with Run(store, "bob@there") as run:
        run.mark(made[1])
        with pytest.raises(TryAgainError, match=rf"bob@there \(process {os.getpid()} on .*expires at"):
            do_push(here, store)

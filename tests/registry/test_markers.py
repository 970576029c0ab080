"""Who can lift whose marker: ended, running and unknown collections, by record and by age."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta

import pytest

from maskreg.digest import Digest
from maskreg.errors import UnavailableError
from maskreg.registry import settle as markers
from maskreg.registry.settle import (
    IN_FLIGHT_S,
    LIFE,
    MARKERS,
    RUNS,
    Run,
    has_ended,
    judge,
    marker_prefix,
    run_of,
    take_over,
    this_process,
)
from tests.store.memory import MemoryStore

A, B = Digest.of(b"a"), Digest.of(b"b")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(markers, "clocks", lambda: (now[0], now[0]))
    return now


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    naps: list[float] = []
    monkeypatch.setattr("maskreg.registry.settle.time.sleep", naps.append)
    return naps


def left_behind(store: MemoryStore, monkeypatch: pytest.MonkeyPatch, process: dict[str, object]) -> str:
    """A run that has marked an artifact and never ends; returns its id."""
    with monkeypatch.context() as patch:
        patch.setattr(markers, "this_process", lambda: process)
        Run(store, "ada@here").__enter__().mark(A)
    return run_of(next(store.list(marker_prefix(A))).key)


def grow_older(store: MemoryStore, by: timedelta) -> None:
    for key, (data, modified) in list(store.objects.items()):
        store.objects[key] = data, modified - by


def ended() -> dict[str, object]:
    return {**this_process(), "pid": 2**22 + 1}


def foreign() -> dict[str, object]:
    return {**ended(), "host": "elsewhere"}


def test_a_run_whose_process_has_ended_is_over_at_once(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    store = MemoryStore()
    run = left_behind(store, monkeypatch, ended())
    assert judge(store, run).over
    take_over(store)
    assert not list(store.list(""))
    assert slept == [IN_FLIGHT_S]  # a last request can be under way


def test_a_run_of_another_machine_is_over_when_its_record_is_old(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    store = MemoryStore()
    run = left_behind(store, monkeypatch, foreign())
    grow_older(store, LIFE - timedelta(minutes=1))
    assert not judge(store, run).over
    take_over(store)
    assert len(list(store.list(""))) == 2
    grow_older(store, timedelta(minutes=2))
    take_over(store)
    assert not list(store.list(""))
    assert slept == []


def test_a_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    naming = "import json, sys; from maskreg.registry.settle import this_process as it; print(json.dumps(it()))"
    with subprocess.Popen(
        [sys.executable, "-c", f"{naming}; sys.stdout.flush(); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        process = json.loads(child.stdout.readline())
        assert process["pid"] == child.pid
        assert not has_ended(process)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie, which its parent has not waited for
        assert has_ended(process)
        child.wait()
        assert has_ended(process)


@pytest.mark.parametrize("field", ["host", "boot", "namespace"])
def test_nothing_is_known_about_other_machines_boots_and_containers(field: str) -> None:
    assert has_ended(ended())
    assert not has_ended({**ended(), field: "elsewhere"})


@pytest.mark.parametrize("record", [b"{", b"[]", b'{"process":{"pid":-1,"started":1}}', b'{"by":1}'])
def test_the_age_of_an_unreadable_record_decides(record: bytes) -> None:
    store = MemoryStore()
    store.put(f"{RUNS}x.json", record)
    assert not judge(store, "x").over
    grow_older(store, 2 * LIFE)
    assert judge(store, "x").over


def test_a_marker_without_a_record_is_a_dead_runs() -> None:
    store = MemoryStore()
    store.put(marker_prefix(A) + "gone", b"")
    take_over(store)
    assert not list(store.list(""))


def test_a_run_renews_its_record_and_outlives_it(clock: list[float]) -> None:
    store = MemoryStore()
    with Run(store, "ada@here") as run:
        begun = next(store.list(RUNS)).modified
        for _ in range(10):
            clock[0] += LIFE.total_seconds() / 3
            assert run.is_valid()
        assert next(store.list(RUNS)).modified > begun


def test_a_run_that_stood_still_never_becomes_valid_again(clock: list[float]) -> None:
    store = MemoryStore()
    with Run(store, "ada@here") as run:
        record = next(store.list(RUNS))
        clock[0] += LIFE.total_seconds() / 2 + 1
        assert not run.is_valid()
        assert next(store.list(RUNS)) == record
        clock[0] -= LIFE.total_seconds()
        assert not run.is_valid()


def test_the_wall_clock_counts_where_the_other_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = [1000.0]
    monkeypatch.setattr("maskreg.registry.settle.time.time", lambda: wall[0])
    with Run(MemoryStore(), "ada@here") as run:
        assert run.is_valid()
        wall[0] += LIFE.total_seconds()
        assert not run.is_valid()


def test_a_request_that_failed_keeps_the_marker_until_its_record_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    with pytest.raises(UnavailableError), Run(store, "ada@here") as run:
        run.mark(A)
        run.mark(B)
        with run.deleting(A):
            raise UnavailableError("no answer: the request might arrive later")
    assert [run_of(info.key) for info in store.list(MARKERS)] == [run_of(next(store.list(marker_prefix(A))).key)]
    monkeypatch.setattr(markers, "has_ended", lambda process: process is not None)
    take_over(store)
    assert list(store.list(marker_prefix(A)))
    grow_older(store, 2 * LIFE)
    take_over(store)
    assert not list(store.list(""))

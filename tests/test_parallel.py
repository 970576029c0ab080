"""Threads that keep an order and a bound, and how many CPUs a process can use."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maskreg.parallel import PAGE, Buffers, available_cpus, each, ordered, worker_count
from maskreg.settings import Settings


def test_results_come_in_the_order_of_the_tasks() -> None:
    # Odd tasks wait for the even one after them, so that they finish out of order.
    done = [threading.Event() for _ in range(21)]

    def run(n: int) -> int:
        if n % 2:
            assert done[n + 1].wait(30)
        done[n].set()
        return n

    with closing(ordered(run, range(20 + 1), jobs=4)) as results:
        assert list(results) == list(range(21))


@pytest.mark.parametrize("jobs", [1, 3])
def test_never_more_tasks_are_drawn_than_there_is_room_for(jobs: int) -> None:
    drawn = taken = peak = 0

    def tasks() -> Iterator[int]:
        nonlocal drawn, peak
        for n in range(50):
            drawn += 1
            peak = max(peak, drawn - taken)
            yield n

    with closing(ordered(lambda n: n, tasks(), jobs=jobs)) as results:
        for _ in results:
            taken += 1
    assert taken == 50
    assert peak <= jobs + 2


@pytest.mark.parametrize(("wrong", "most", "size"), [(3, 20, None), (700, 3000, lambda _: 1)], ids=["alone", "batched"])
def test_an_error_comes_out_in_its_turn_and_stops_the_rest(wrong: int, most: int, size: Any) -> None:
    ran, got = [], []

    def run(n: int) -> int:
        ran.append(n)
        if n == wrong:
            raise ValueError("wrong")
        return n

    with closing(ordered(run, range(5000), jobs=2, size=size)) as results, pytest.raises(ValueError, match="wrong"):
        for n in results:
            got.append(n)  # one by one, to keep what came before the error
    assert got == list(range(wrong))
    assert len(ran) < most


def test_closing_waits_for_what_runs() -> None:
    running = threading.Event()
    go_on = threading.Event()
    finished = []

    def run(n: int) -> int:
        if n == 1:
            running.set()
            assert go_on.wait(30)
        finished.append(n)
        return n

    results = ordered(run, range(100), jobs=2)
    assert next(results) == 0
    assert running.wait(30)
    go_on.set()
    results.close()
    assert 1 in finished
    assert len(finished) < 10


@pytest.mark.parametrize("jobs", [1, 3])
def test_each_runs_every_item_and_no_more_than_jobs_at_once(jobs: int) -> None:
    lock, running, peak, seen = threading.Lock(), 0, 0, set[int]()

    def work(n: int) -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
            seen.add(n)
        with lock:
            running -= 1

    each(range(20), work, jobs)
    assert seen == set(range(20))
    assert peak <= jobs


@pytest.mark.parametrize("jobs", [1, 3])
def test_each_draws_nothing_more_after_an_error(jobs: int) -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for n in range(50):
            drawn.append(n)
            yield n

    def work(n: int) -> None:
        if n == 4:
            raise ValueError(n)

    with pytest.raises(ValueError, match="4"):
        each(items(), work, jobs)
    assert len(drawn) <= 4 + 2 * jobs


def test_small_tasks_are_handed_over_together(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = []
    submit = ThreadPoolExecutor.submit

    def counting(pool: ThreadPoolExecutor, *call: Any) -> Any:
        submitted.append(call)
        return submit(pool, *call)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counting)
    sizes = [1 << 22, 1 << 18, *[64] * 1000, (1 << 18) - 64, 64, 1 << 22]
    with closing(ordered(lambda n: -n, sizes, jobs=3, size=lambda n: n)) as results:
        assert list(results) == [-n for n in sizes]
    # 1,000 small tasks by 256, then two that fill a batch, and each of the others alone.
    assert len(submitted) == 2 + 4 + 1 + 1
    submitted.clear()
    assert list(ordered(lambda n: n, range(20), jobs=3)) == list(range(20))
    assert len(submitted) == 20


@pytest.mark.parametrize("phase", [0, 8, PAGE - 8])
def test_memory_begins_at_the_phase_of_a_page_that_was_asked_for(phase: int) -> None:
    buffers = Buffers()
    for size in (1, 100_000, 99_999, 300_000):
        memory = buffers.bytes("use", size, phase)
        assert memory.size == size
        assert memory.ctypes.data % PAGE == phase


def test_memory_is_used_again_by_the_same_thread_and_use() -> None:
    buffers = Buffers()
    first = buffers.bytes("use", 100_000)
    assert buffers.bytes("use", 50_000, 8).base is first.base
    assert buffers.bytes("another", 50_000).base is not first.base
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(buffers.bytes, "use", 50_000).result().base is not first.base


def group(root: Path, path: str, **files: str) -> None:
    """A control group with these files."""
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text + "\n")


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which this process can run on 64 CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("text", "folders", "cpus"),
    [
        ("0::/a/b", {"a/b": {"cpu_max": "200000 100000"}}, 2),
        ("0::/a/b", {"a/b": {"cpu_max": "max 100000"}, "a": {"cpu_max": "350000 100000"}}, 4),
        ("0::/a", {"a": {"cpu_max": "50000 100000"}}, 1),
        ("0::/of/the/host", {"": {"cpu_max": "300000 100000"}}, 3),
        ("0::/a", {"a": {"cpu_max": "max 100000"}}, 64),
        ("0::/a", {"a": {"cpu_max": "what"}}, 64),
        ("", {}, 64),
    ],
)
def test_the_least_quota_counts(text: str, folders: dict[str, dict[str, str]], cpus: int, tmp_path: Path) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "root"
    groups.write_text(text)
    for path, files in folders.items():
        group(root, path, **files)
    assert available_cpus(groups, root) == cpus
    assert available_cpus(tmp_path / "none", tmp_path) == 64


@pytest.mark.parametrize(("cpus", "jobs", "threads"), [(1, 4, 1), (2, 8, 2), (4, 16, 4), (64, 16, 16)])
def test_jobs_follow_the_machine(
    cpus: int, jobs: int, threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("maskreg.settings.remotes.available_cpus", lambda: cpus)
    monkeypatch.setattr("maskreg.parallel.available_cpus", lambda: cpus)
    assert Settings.load({}, home=str(tmp_path)).jobs == jobs
    assert Settings.load({"MASKREG_JOBS": "3"}, home=str(tmp_path)).jobs == 3
    assert worker_count(None) == threads

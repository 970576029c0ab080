"""The Ray engine on a real cluster of two nodes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maskreg.engine import ordered, running_on
from maskreg.errors import CorruptError, UnavailableError, UsageError, WorkerError
from tests.engine.works import Deadly, Held, Poisoned, Squares, block_of, run_with, unpicklable_error


@pytest.fixture
def on_two(ray_cluster: Any) -> Iterator[None]:
    with running_on("ray", workers=2, label="maskreg test"):
        yield


@pytest.mark.usefixtures("on_two")
def test_results_come_in_order_from_several_processes(tmp_path: Path) -> None:
    results = list(ordered(Squares(tmp_path, 0.01), range(60), jobs=1, near=lambda n: f"file-{n % 2}"))
    assert results == [n * n for n in range(60)]
    pids = {int(path.name) for path in tmp_path.iterdir()}
    assert len(pids) == 2
    assert os.getpid() not in pids


@pytest.mark.usefixtures("on_two")
def test_an_error_is_raised_in_its_turn_and_once() -> None:
    taken: list[int] = []
    # Two tasks go together.
    with closing(ordered(Poisoned(21), range(100), jobs=1, size=lambda _: 1 << 17)) as results:
        with pytest.raises(CorruptError, match="tensor w21: does not decode") as raised:
            for number in results:
                taken.append(number)  # one by one, to keep what came before the error
        assert taken == list(range(21))
        assert (raised.value.hint, raised.value.key) == ("pull it again", "tensor w21")
    with pytest.raises(WorkerError, match="LocalError: at 0"):
        list(ordered(unpicklable_error, range(3), jobs=1))


@pytest.mark.usefixtures("on_two")
def test_a_worker_that_dies_is_replaced_and_its_batches_are_done_again(tmp_path: Path) -> None:
    assert list(ordered(Deadly(tmp_path, 7, 2), range(30), jobs=1)) == list(range(30))
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_node_had_is_done_by_others_when_it_dies(ray_cluster: Any, tmp_path: Path) -> None:
    node = ray_cluster.add_node(num_cpus=1, object_store_memory=200 << 20)
    with running_on("ray", workers=5, label="maskreg test"):
        squares = ordered(Held(tmp_path, 5), range(60), jobs=1)
        assert next(squares) == 0  # all have begun, the node's too, and cannot finish
        ray_cluster.remove_node(node, allow_graceful=False)
        (tmp_path / "go").touch()
        assert list(squares) == [number * number for number in range(1, 60)]


@pytest.mark.usefixtures("on_two")
def test_what_kills_every_worker_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="3 workers died with the same work"):
        list(ordered(Deadly(tmp_path, 7, 9), range(30), jobs=1))
    # A worker that dies can take along its last answer, and that batch is blamed: at most twice without an error.
    assert 3 <= len(list(tmp_path.iterdir())) <= 5
    assert list(ordered(Poisoned(-1), range(5), jobs=1)) == list(range(5))  # new workers


@pytest.mark.usefixtures("on_two")
def test_what_is_drawn_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskreg.engine.ray.MAX_BYTES", 3 << 20)
    drawn = taken = peak = 0

    def tasks() -> Iterator[int]:
        nonlocal drawn, peak
        for number in range(24):
            drawn += 1
            peak = max(peak, drawn - taken)
            yield number

    for number, block in enumerate(ordered(block_of, tasks(), jobs=1)):
        assert block[0] == block[-1] == number % 251
        taken += 1
    assert taken == 24
    assert peak <= 5  # 4 are handed out before the size of the first is known


def test_closing_leaves_no_worker(ray_cluster: Any, tmp_path: Path) -> None:
    import ray

    with running_on("ray", workers=2, label="maskreg test"):
        results = ordered(Squares(tmp_path, 0.2), range(1000), jobs=1)
        assert next(results) == 0
        names = {actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)}
        assert {name.rpartition("/")[0] for name in names} == {f"maskreg test {os.getpid()}"}
        results.close()
        done = threading.Event()
        for _ in range(100):
            if not ray.util.list_named_actors(all_namespaces=True):
                break
            done.wait(0.1)
        assert ray.util.list_named_actors(all_namespaces=True) == []
    assert not ray.is_initialized()


@pytest.mark.usefixtures("on_two")
def test_what_exists_in_one_process_alone_is_refused() -> None:
    with pytest.raises(UsageError, match="workers of a cluster cannot do this") as raised:
        list(ordered(partial(run_with, threading.Lock()), range(3), jobs=1))
    assert raised.value.hint.endswith("--engine threads")


def test_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with running_on("ray"), pytest.raises(UnavailableError, match="no Ray cluster answers"):
        list(ordered(block_of, range(3), jobs=1))


def test_a_cluster_of_this_machine_is_one_that_ray_start_began(
    ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.delenv("RAY_ADDRESS")
    recorded_in = tmp_path / "ray_current_cluster"
    monkeypatch.setattr("ray._private.utils.get_ray_address_file", lambda _: str(recorded_in))
    for recorded, is_used in ((ray_cluster.address, True), ("127.0.0.1:1", False)):
        recorded_in.write_text(recorded)
        with running_on("ray", workers=1):
            assert list(ordered(abs, [-1], jobs=1)) == [1]
            assert (ray.get_runtime_context().gcs_address == ray_cluster.address) == is_used

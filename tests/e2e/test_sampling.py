"""How benchmarks measure: in turns, in CPU seconds, on so many cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from scripts.bench.bars.sampling import cores, take_turns, timed
from scripts.bench.processes import Cost


def test_works_take_turns_and_the_first_turn_does_not_count() -> None:
    order: list[str] = []

    def work(name: str) -> Callable[[], Mapping[str, Cost]]:
        def repetition() -> Mapping[str, Cost]:
            order.append(name)
            return {name: Cost(float(len(order)), 0.0)}

        return repetition

    samples = take_turns([work("a"), work("b")], 2)
    assert order == ["a", "b"] * 3
    assert samples["a"].cpu == (3.0, 5.0)
    assert samples["b"].cpu == (4.0, 6.0)


def test_cpu_seconds_are_counted() -> None:
    cost = timed("sum", lambda: sum(range(300_000)))()["sum"]
    assert cost.cpu > 1e-3
    assert cost.wall > 1e-3


def test_cores_are_given_back() -> None:
    before = os.sched_getaffinity(0)
    with cores(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before

"""Timing: works that take turns, so that a slow moment of the machine does not fall on a single one of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from scripts.bench.bars.figures import Sample
from scripts.bench.processes import Cost

Work = Callable[[], Mapping[str, Cost]]
"""Does one repetition; returns what each thing in it took, by name."""

_LEAST = 1e-9
"""Seconds; a clock may not have moved, and figures are divided by."""


class Stopwatch:
    """Adds up what pieces of work of this process take, by name.

    Attributes:
        costs: so far.
    """

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add what the block takes."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        so_far = self.costs.get(name, Cost(_LEAST, _LEAST))
        self.costs[name] = Cost(so_far.cpu + cpu, so_far.wall + wall)


def timed(name: str, work: Callable[[], object]) -> Work:
    """A work of this process, all of it under one name."""

    def repetition() -> Mapping[str, Cost]:
        watch = Stopwatch()
        with watch(name):
            work()
        return watch.costs

    return repetition


def take_turns(works: Sequence[Work], rounds: int) -> dict[str, Sample]:
    """Run all works in turn, ``rounds`` times. Before several rounds, one that is not counted fills caches."""
    costs: dict[str, list[Cost]] = {}
    for number in range(rounds + (rounds > 1)):
        for work in works:
            for name, cost in work().items():
                costs.setdefault(name, []).append(cost)
        if number == 0 and rounds > 1:
            costs.clear()
    return {name: sample_of(entries) for name, entries in costs.items()}


def sample_of(costs: list[Cost]) -> Sample:
    """Repetitions as a sample."""
    return Sample(tuple(cost.cpu for cost in costs), tuple(cost.wall for cost in costs))


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Confine this process, and those that it starts, to so many cores, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(before)[:count]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

"""The plan for models of a terabyte: what its page says is what the simulation gives, and the simulation is sound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.plan.inputs import BATCH_BYTES, BLOCK_BYTES, NODE, S3, Node, Rates, Service
from scripts.plan.page import PAGE, PICTURE, picture, rendered
from scripts.plan.schedule import Plan, simulate, task_of

RATES = Rates(diff=2.0, take=0.25, store=0.5, stored=0.15, apply=1.0, fetch=0.5, send=1.0)
EASY = Service(gets=1e12, puts=1e12, connection=1e15, latency=0.0, complete=0.0)
WIDE = Node(cores=16, network=1e15, connections=1000)
AT_ONCE = replace(RATES, take=0.0, store=0.0)
BASE = Plan("extract", 20e9, 4, AT_ONCE, node=WIDE, service=EASY, result_seconds=0.0)


def test_the_page_and_the_picture_are_up_to_date() -> None:
    page = PAGE.read_text()
    assert rendered(page) == page, "python -m scripts.plan"
    assert picture() == PICTURE.read_text(), "python -m scripts.plan"


@pytest.mark.parametrize(
    ("plan", "seconds"),
    [
        # 40 GB at 2 + 2 x 0.5 CPU seconds each, on 64 cores.
        (BASE, 40 * 3 / 64),
        (replace(BASE, command="apply"), 40 * 2.5 / 64),
        (replace(BASE, nodes=1), 40 * 3 / 16),
        (replace(BASE, rates=RATES), 40 * 0.25),
        (replace(BASE, rates=RATES, storers=1), 40 * 0.5),
        (replace(BASE, result_seconds=0.01), 40e9 / BATCH_BYTES * 0.01),
        # Both sides, over four networks of 1 GB/s; and requests for each block of a side.
        (replace(BASE, node=replace(WIDE, network=1e9)), 80 / 4),
        (replace(BASE, service=replace(EASY, gets=100)), 40e9 / BLOCK_BYTES / 100),
        (replace(BASE, service=replace(EASY, gets=100), prefixes=4), 40e9 / BLOCK_BYTES / 400),
        (replace(BASE, node=replace(WIDE, connections=10), service=replace(EASY, connection=1e8)), 80 / 4),
        (replace(BASE, command="apply", service=replace(EASY, puts=100)), 40e9 / BLOCK_BYTES / 200),
        (replace(BASE, command="apply", service=replace(EASY, complete=10.0)), 40 * 2.5 / 64 + 10),
    ],
)
def test_the_slowest_station_decides(plan: Plan, seconds: float) -> None:
    schedule = simulate(plan)
    assert schedule.seconds == pytest.approx(seconds, rel=0.05)
    assert max(schedule.busy.values()) > 0.4
    assert all(share < 1.001 for share in schedule.busy.values())


def test_tasks_are_all_of_the_model() -> None:
    for plan in (BASE, Plan("extract", 1e12, 512, RATES), Plan("apply", 671e9, 8, RATES)):
        task = task_of(plan)
        side = task.read / 2 if plan.command == "extract" else task.write
        assert 2 * plan.parameters <= task.count * side < 2 * plan.parameters + side


def test_a_slow_node_costs_less_where_any_node_takes_the_next_task() -> None:
    plan = replace(BASE, nodes=8)
    even, slow = simulate(plan).seconds, simulate(replace(plan, slow=1 / 8)).seconds
    assert even < slow < 1.2 * even
    assert simulate(replace(plan, slow=1 / 8, in_place=True)).seconds > 1.5 * slow


def test_a_window_and_one_writer_hold_nodes_to_the_order_of_their_files() -> None:
    plan = Plan("extract", 671e9, 64, AT_ONCE, node=NODE, service=S3, result_seconds=0.0)
    assert simulate(replace(plan, in_place=True)).seconds > 2 * simulate(plan).seconds

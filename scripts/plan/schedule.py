"""The schedule of one command on many nodes, simulated task by task.

A task is some blocks. It goes through stations, each of which serves tasks one after another, in their order::

    drawn -> requests -> network of a node -> a core of it -> network of the driver -> its thread -> storing threads
      ^                                                                                                     |
      +------------------------- at most so many tasks are between the two ends ----------------------------+

So the time at which a task leaves a station is the later of two, its arrival and the end of the task before it, plus
its own time there. A node takes the next task when a core of it is free, and reads some tasks ahead.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

from maskreg.bucket.uploads import COMPLETING
from maskreg.parallel import MAX_DEFAULT_JOBS
from scripts.plan.inputs import BATCH_BYTES, BLOCK_BYTES, NODE, RESULT_SECONDS, S3, SHARD_BYTES, Node, Rates, Service

TASKS = 20_000
"""About how many tasks a schedule has; more where a core would otherwise get fewer than two."""


@dataclass(frozen=True)
class Plan:
    """A command on a number of nodes.

    Attributes:
        command: ``extract`` or ``apply``.
        parameters: of the model.
        nodes: how many.
        rates: measured.
        node: each of them.
        service: where the checkpoints are.
        prefixes: among which the objects of one checkpoint are spread.
        storers: threads that store the shards of the artifact.
        result_seconds: of the driver's thread, for each batch of blocks that a worker sends back.
        slow: share of the nodes that take three times as long.
        in_place: each node works on the files that it holds, and nothing else; else any node takes the next task.
    """

    command: str
    parameters: float
    nodes: int
    rates: Rates
    node: Node = NODE
    service: Service = S3
    prefixes: int = 1
    storers: int = MAX_DEFAULT_JOBS
    result_seconds: float = RESULT_SECONDS
    slow: float = 0.0
    in_place: bool = False


@dataclass(frozen=True)
class Task:
    """What one task takes from each station.

    Attributes:
        count: of tasks.
        gets: requests that read, of each prefix.
        puts: requests that write, of each prefix.
        read: bytes that a node reads.
        write: bytes that a node writes to the bucket.
        cpu: seconds of a core.
        result: bytes that go to the driver.
        take: seconds of the driver's thread.
        store: seconds of a thread that stores.
    """

    count: int
    gets: float
    puts: float
    read: float
    write: float
    cpu: float
    result: float
    take: float
    store: float


@dataclass
class Schedule:
    """What came out.

    Attributes:
        seconds: from the first request to the visible result.
        busy: share of that time in which each kind of station works.
    """

    seconds: float
    busy: dict[str, float] = field(default_factory=dict)

    @property
    def bound(self) -> str:
        """The station that works most."""
        return max(self.busy, key=lambda name: self.busy[name])


def task_of(plan: Plan) -> Task:
    """The blocks of a model, divided into tasks."""
    blocks = math.ceil(2 * plan.parameters / BLOCK_BYTES)
    together = max(1, blocks // max(TASKS, 2 * plan.nodes * plan.node.cores))
    rates, size = plan.rates, together * BLOCK_BYTES
    count = math.ceil(blocks / together)
    if plan.command == "extract":
        cpu = rates.diff + 2 * rates.fetch
        # Source and target have prefixes of their own.
        return Task(
            count, together / plan.prefixes, 0, 2 * size, 0, cpu * size / 1e9, rates.stored * size,
            rates.take * size / 1e9 + size / BATCH_BYTES * plan.result_seconds, rates.store * size / 1e9,
        )  # fmt: skip
    cpu = rates.apply + rates.fetch + rates.send
    return Task(
        count, together / plan.prefixes, together / 2 / plan.prefixes, (1 + rates.stored) * size, size,
        cpu * size / 1e9, 0, 0, 0,
    )  # fmt: skip


class _Nodes:
    """Cores and networks of all nodes."""

    def __init__(self, plan: Plan, task: Task) -> None:
        node = plan.node
        self.speed = [3.0 if number < plan.slow * plan.nodes else 1.0 for number in range(plan.nodes)]
        self.reading = task.read / min(node.network, node.connections * plan.service.connection)
        self.writing = task.write / node.network
        self.cores = [(0.0, number) for _ in range(node.cores) for number in range(plan.nodes)]
        self.own = [[0.0] * node.cores for _ in range(plan.nodes)]
        self.read_free, self.write_free = [0.0] * plan.nodes, [0.0] * plan.nodes
        # As many tasks are on the way to a node as it works on.
        self.begun = [deque([0.0] * node.cores, maxlen=node.cores) for _ in range(plan.nodes)]

    def next_free(self) -> int:
        return self.cores[0][1]

    def work(self, number: int, ready: float, seconds: float, *, in_place: bool) -> float:
        """When a core of a node has done a task that is there at ``ready``."""
        if in_place:
            free = heapq.heappop(self.own[number])
        else:
            free, number = heapq.heappop(self.cores)
        begin = max(ready, free)
        self.begun[number].append(begin)
        done = begin + seconds * self.speed[number]
        if in_place:
            heapq.heappush(self.own[number], done)
        else:
            heapq.heappush(self.cores, (done, number))
        return done


def simulate(plan: Plan) -> Schedule:
    """Send all tasks of a command through the stations."""
    task, nodes = task_of(plan), _Nodes(plan, task_of(plan))
    window = deque([0.0] * (2 * plan.nodes * plan.node.cores))
    requests = driver = taken = written = last = 0.0
    asking = max(task.gets / plan.service.gets, task.puts / plan.service.puts)
    arriving, storing = task.result / plan.node.network, task.store / plan.storers
    shard = max(1, round(task.count * SHARD_BYTES / (2 * plan.parameters)))
    for number in range(task.count):
        drawn = window.popleft()
        node = number // shard % plan.nodes if plan.in_place else nodes.next_free()
        requests = max(requests, drawn, nodes.begun[node][0]) + asking
        nodes.read_free[node] = max(nodes.read_free[node], requests) + nodes.reading
        ready = nodes.read_free[node] + plan.service.latency
        done = nodes.work(node, ready, task.cpu, in_place=plan.in_place)
        nodes.write_free[node] = max(nodes.write_free[node], done) + nodes.writing
        driver = max(driver, done) + arriving if task.result else driver
        taken = max(taken, driver) + task.take
        written = max(written, taken) + storing
        end = written if task.result else nodes.write_free[node]
        window.append(end)
        last = max(last, end)
    shards = 2 * plan.parameters / SHARD_BYTES
    commit = 0.0 if plan.command == "extract" else math.ceil(shards / COMPLETING) * plan.service.complete
    return _result(plan, task, nodes, last + commit, commit)


def _result(plan: Plan, task: Task, nodes: _Nodes, seconds: float, commit: float) -> Schedule:
    cores = plan.nodes * plan.node.cores
    work = {
        "requests": max(task.gets / plan.service.gets, task.puts / plan.service.puts) * task.count,
        "network of the nodes": max(nodes.reading, nodes.writing) * task.count / plan.nodes,
        "cores": task.cpu * task.count / cores * (1 + 2 * plan.slow),
        "network of the driver": task.result * task.count / plan.node.network,
        "thread of the driver": task.take * task.count,
        "storing threads": task.store * task.count / plan.storers,
        "commit": commit,
    }
    return Schedule(seconds, {name: spent / seconds for name, spent in work.items() if spent})

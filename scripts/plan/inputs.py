"""What the plan starts from: rates measured here, limits that a service publishes, and machines that are assumed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from maskreg.engine import BATCH_NUMEL
from maskreg.tensors.blocks import BLOCK_NUMEL

RATES = Path(__file__).with_name("rates.json")
"""Measured by ``python -m scripts.plan measure``."""

BLOCK_BYTES = 2 * BLOCK_NUMEL
"""Of a block of bf16 values."""

MODELS = {"671 B": 671e9, "1 T": 1e12}
"""Parameters, each of two bytes."""

NODES = (8, 64, 512)

BATCH_BYTES = 2 * BATCH_NUMEL
"""Of the blocks for which a worker of a Ray cluster sends one result."""

RESULT_SECONDS = 0.002
"""CPU seconds of the driver's thread for each result: what ``python -m scripts.bench ray`` gives at 64 simulated
workers."""

SHARD_BYTES = 5e9
"""Of a weight file, as the Hugging Face libraries write them."""


@dataclass(frozen=True)
class Service:
    """Limits of object storage.

    Attributes:
        gets: GET requests a second, of one prefix.
        puts: PUT requests a second, of one prefix.
        connection: bytes a second of one connection.
        latency: seconds before the first byte.
        complete: seconds to complete an upload in parts.
    """

    gets: float
    puts: float
    connection: float
    latency: float
    complete: float


S3 = Service(gets=5500, puts=3500, connection=85e6, latency=0.15, complete=0.3)
"""Amazon's: the S3 user guide, "Best practices design patterns: optimizing Amazon S3 performance" (5,500 GET and 3,500
PUT requests a second for each prefix; 85 to 90 MB/s a request; first bytes after 100 to 200 ms). The time to complete
an upload is assumed."""


@dataclass(frozen=True)
class Node:
    """A machine.

    Attributes:
        cores: that work on blocks.
        network: bytes a second, each way.
        connections: requests at a time.
    """

    cores: int
    network: float
    connections: int


NODE = Node(cores=64, network=12.5e9, connections=192)
"""Assumed: 64 cores and 100 Gbit/s. A process has sixteen threads and twelve requests ahead, so four processes have 48
requests on the way; the plan takes 192, three for each core, which fill the network."""


@dataclass(frozen=True)
class Rates:
    """Measured CPU seconds for each GB of one checkpoint, on one core; GB are 10^9 bytes.

    Attributes:
        diff: of threads that read, compare, code and hash, from a disk.
        take: of the one thread that takes results and fills the shards of the artifact.
        store: of the threads that sum, hash and write full shards.
        stored: bytes of the artifact / bytes of the checkpoint.
        apply: of applying, from a disk to a disk.
        fetch: more for each GB that comes from a bucket instead of a disk.
        send: more for each GB that goes to a bucket instead of a disk.
    """

    diff: float
    take: float
    store: float
    stored: float
    apply: float
    fetch: float
    send: float


def measured_rates(path: Path = RATES) -> dict[str, Rates]:
    """The measured rates, by kind of update."""
    return {name: Rates(**values) for name, values in json.loads(path.read_text())["updates"].items()}

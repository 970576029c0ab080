"""Measures what the plan starts from: CPU seconds of extract and apply, on a disk and from a bucket.

Generated pairs of 420 MB and 1.26 GB a side, in memory where the system offers that; an S3 server (SeaweedFS) in a
process of its own, whose CPU time does not count. The least of several turns counts, so other load of the machine
matters little. What extract takes on a disk is the difference between the two pairs, without what both take alike.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import uuid4

from maskreg.artifact.reader import Artifact
from maskreg.artifact.storing import ShardStorer
from maskreg.bucket import BucketPath, Location
from maskreg.checkpoint import open_checkpoint
from maskreg.digest import Digest
from maskreg.flow.apply.on_disk import apply
from maskreg.flow.extract.extraction import extract
from maskreg.store.file import FileStore
from scripts.plan.inputs import RATES
from tests.buckets import options_of, upload
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.servers import SeaweedFS

TURNS = 4

UPDATES = {"half of the weights moved": 0.5, "2 % of the weights moved": 0.02}
"""Kinds of updates: what a distillation does, and what one step of a run does."""


SMALL, LARGE = 20, 60
"""Tensors of the two pairs, of 21 MB each."""


class Cpu(NamedTuple):
    """CPU seconds of a piece of work: of all threads, of the one that called it, and of those that store shards."""

    every: float
    caller: float
    storing: float


def main() -> None:
    """Measure, and write ``rates.json``."""
    server = SeaweedFS()
    try:
        os.environ.update(server.env())
        with memory() as folder:
            updates = {name: _rates(server, folder / str(moving), moving) for name, moving in UPDATES.items()}
    finally:
        server.close()
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "measured": f"{datetime.now(UTC):%Y-%m-%d}"}
    RATES.write_text(json.dumps({**machine, "turns": TURNS, "updates": updates}, indent=2) + "\n")


@contextmanager
def memory() -> Iterator[Path]:
    """A temporary folder, in memory where there is such a file system."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="maskreg-plan-", dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)


def _rates(server: SeaweedFS, folder: Path, moving: float) -> dict[str, float]:
    pair, gigabytes = _pair(folder / "small", SMALL, moving)
    larger, more = _pair(folder / "large", LARGE, moving)
    bucket, home = server.new_bucket(), folder / "home"
    stored = [upload(server, path, bucket, path.name) for path in pair]
    # Into a new registry each time: what is there already is compared with what is made again.
    disk = _least(lambda: _extract(pair[0], pair[1], folder / uuid4().hex))
    large = _least(lambda: _extract(larger[0], larger[1], folder / uuid4().hex))
    each = Cpu(*((b - a) / (more - gigabytes) for a, b in zip(disk, large, strict=True)))
    fetched = _least(lambda: _extract(_again(server, stored[0]), _again(server, stored[1]), folder / uuid4().hex))
    artifact = Artifact.open(FileStore(home), _extract(pair[0], pair[1], home))
    size = sum(item.size for item in artifact.manifest.objects)
    applied = _least(lambda: _apply(artifact, pair[0], folder / uuid4().hex))
    sent = _least(lambda: _apply(artifact, pair[0], BucketPath(stored[0].bucket, uuid4().hex)))
    return {
        "diff": round(each.every - each.caller - each.storing, 3),
        "take": round(each.caller, 3),
        "store": round(each.storing, 3),
        "stored": round(size / 1e9 / gigabytes, 4),
        "apply": round(applied.every / gigabytes, 3),
        "fetch": round((fetched.every - disk.every) / (2 * gigabytes), 3),
        "send": round((sent.every - applied.every) / gigabytes, 3),
    }


def _pair(folder: Path, tensors: int, moving: float) -> tuple[list[Path], float]:
    """Source and target, and the GB of each."""
    source = {f"model.layers.{number}.mlp.up_proj.weight": bf16((5120, 2048), number) for number in range(tensors)}
    target = {name: moved(tensor, moving, seed=number) for number, (name, tensor) in enumerate(source.items())}
    pair = [make_checkpoint(folder / name, t, shards=4) for name, t in (("source", source), ("target", target))]
    return pair, sum(bits.nbytes for _, bits in source.values()) / 1e9


def _least(work: Callable[[], object]) -> Cpu:
    turns = []
    for _ in range(TURNS):
        with _storing() as storing:
            process, thread = time.process_time(), time.thread_time()
            work()
            turns.append((time.process_time() - process, time.thread_time() - thread, sum(storing)))
    return Cpu(*map(min, zip(*turns, strict=True)))


@contextmanager
def _storing() -> Iterator[list[float]]:
    """CPU seconds that each shard takes on the thread that stores it."""
    seconds: list[float] = []

    def timed(*shard: Any) -> Any:
        begin = time.thread_time()
        memory = store(*shard)
        seconds.append(time.thread_time() - begin)
        return memory

    store = ShardStorer.store
    with patch.object(ShardStorer, "store", timed):
        yield seconds


def _extract(source: Location, target: Location, home: Path) -> Digest:
    with open_checkpoint(source) as before, open_checkpoint(target) as after:
        return extract(before, after, home).digest


def _apply(artifact: Artifact, source: Path, out: Location) -> None:
    with open_checkpoint(source) as before:
        apply(artifact, before, out)


def _again(server: SeaweedFS, path: BucketPath) -> BucketPath:
    """The same path, of which nothing is known yet."""
    return BucketPath.of(str(path), options_of(server))

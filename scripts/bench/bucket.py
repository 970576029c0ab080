"""Extracting from a bucket, beside reading the same ranges with the library alone and extracting from a disk.

One S3 server (SeaweedFS) in a process of its own, and a generated pair. In turn, each round: the bare library reads
every range that extract asks for, eight at a time; extract reads the pair from the bucket;
extract reads it from the disk.

Extract can be no faster than either of the other two, so its rate is held against the slower of them: what is measured
is how well fetching and work overlap. The server has one core for itself, so that neither takes time from the other.

    scripts/bench/run bucket --gigabytes 1 --rounds 3
    scripts/bench/run bucket --gigabytes 1 --rounds 3 --link 5.5gbit

Without a link the server answers as fast as memory is copied, faster than any network gives each core. ``--link`` runs
all of it in a network of its own (``unshare``, ``ip`` and ``tc``; as root), whose link is limited. Its rate is that of
``tc``, which counts more than the answers: what the library reaches is the rate to speak of.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from maskreg.bucket import BucketPath, Location
from maskreg.bucket.connection import Bucket
from maskreg.checkpoint import open_checkpoint
from maskreg.flow.extract.extraction import extract
from scripts.bench.process_memory import peak, resident
from tests.buckets import options_of, upload
from tests.e2e.running import big_pair
from tests.servers import SeaweedFS

BAR = 0.8
"""Rate of extract from a bucket that must be reached, of the least of the other two."""

READERS = 8


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the figures, and exit 1 when the bar is missed."""
    parser = argparse.ArgumentParser(
        "scripts/bench/run bucket", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of each checkpoint")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default="/dev/shm", help="folder to work in")
    parser.add_argument("--link", default="", help="limit the link to the server, such as 5.5gbit")
    options = parser.parse_args(argv)
    if options.link:
        return _behind(options.link, argv if argv is not None else sys.argv[1:])
    server = _server_apart()
    try:
        os.environ.update(server.env())
        with tempfile.TemporaryDirectory(prefix="maskreg-bucket-", dir=options.dir) as folder:
            figures = measured(server, Path(folder), options.gigabytes, options.rounds)
    finally:
        server.close()
    print(json.dumps(figures, indent=2))
    return 0 if float(str(figures["of the slower of both"])) >= BAR else 1


def _behind(link: str, arguments: Sequence[str]) -> int:
    """Run the same in a network of its own."""
    shape = f"ip link set lo up && tc qdisc add dev lo root tbf rate {shlex.quote(link)} burst 8mb limit 64mb"
    own = argparse.ArgumentParser(allow_abbrev=False)
    own.add_argument("--link")
    again = [sys.executable, "-m", "scripts.bench.bucket", *own.parse_known_args(arguments)[1]]
    return subprocess.run(["unshare", "--net", "sh", "-c", f'{shape} && exec "$@"', "sh", *again]).returncode


def _server_apart() -> SeaweedFS:
    """A server on a core of its own, where the system can say so; this process has the others."""
    if not hasattr(os, "sched_setaffinity") or len(cpus := sorted(os.sched_getaffinity(0))) < 2:
        return SeaweedFS()
    os.sched_setaffinity(0, cpus[-1:])
    try:
        return SeaweedFS()
    finally:
        os.sched_setaffinity(0, cpus[:-1])


def measured(server: SeaweedFS, folder: Path, gigabytes: float, rounds: int) -> dict[str, object]:
    """Rates in MB/s of both checkpoints together, CPU seconds of this process, and its peak memory."""
    bucket = server.new_bucket()
    on_disk = big_pair(folder, max(int(gigabytes * 954), 8))
    stored = [upload(server, path, bucket, f"run/{path.name}") for path in on_disk]
    size = sum(path.stat().st_size for side in on_disk for path in side.iterdir())
    ranges = _ranges(server, stored, folder)
    ways: dict[str, Callable[[], None]] = {
        "library": lambda: _read(ranges),
        "extract from the bucket": lambda: _extract([_again(server, path) for path in stored], folder),
        "extract from the disk": lambda: _extract(on_disk, folder),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    before = resident()
    for _ in range(rounds):
        for name, work in ways.items():
            start, spent = time.perf_counter(), time.process_time()
            work()
            seconds[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - spent)
    rates = {name: size / 1e6 / statistics.median(times) for name, times in seconds.items()}
    return {
        "bytes": size,
        "rounds": rounds,
        "requests": len(ranges),
        "median MB/s": {name: round(rate, 1) for name, rate in rates.items()},
        "median CPU s": {name: round(statistics.median(times), 2) for name, times in cpu.items()},
        "peak MB beyond the beginning": round((peak() - before) / 1e6),
        "fetched of the pair's bytes": round(sum(stop - start for _, start, stop in ranges) / size, 4),
        "of the library": round(rates["extract from the bucket"] / rates["library"], 3),
        "of the disk": round(rates["extract from the bucket"] / rates["extract from the disk"], 3),
        "of the slower of both": round(
            rates["extract from the bucket"] / min(rates["library"], rates["extract from the disk"]), 3
        ),
    }


def _ranges(server: SeaweedFS, stored: Sequence[BucketPath], folder: Path) -> list[tuple[BucketPath, int, int]]:
    """What extract asks for."""
    ranges: list[tuple[BucketPath, int, int]] = []
    read = Bucket.read

    def noted(self: Bucket, key: str, start: int, stop: int, etag: str = "") -> object:
        ranges.append((BucketPath(self, key), start, stop))
        return read(self, key, start, stop, etag)

    Bucket.read = noted  # type: ignore[method-assign, assignment]
    try:
        _extract([_again(server, path) for path in stored], folder)
    finally:
        Bucket.read = read  # type: ignore[method-assign]
    return ranges


def _read(ranges: Sequence[tuple[BucketPath, int, int]]) -> None:
    import obstore

    def get(span: tuple[BucketPath, int, int]) -> int:
        path, start, stop = span
        return len(obstore.get_range(path.bucket.store, path.key, start=start, end=stop))

    with ThreadPoolExecutor(READERS) as pool:
        for _ in pool.map(get, ranges):
            pass


def _extract(pair: Sequence[Location], folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory(dir=folder) as home,
        open_checkpoint(pair[0]) as source,
        open_checkpoint(pair[1]) as target,
    ):
        extract(source, target, home)


def _again(server: SeaweedFS, path: BucketPath) -> BucketPath:
    """The same path, of which nothing is known yet."""
    return BucketPath.of(str(path), options_of(server))


if __name__ == "__main__":
    sys.exit(main())

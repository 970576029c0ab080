"""Pulling through a service by signed links, beside pulling from the bucket itself, in one run.

One server in a process of its own, over SeaweedFS; both ways fetch the same artifact into an empty home, in turn.

    scripts/bench/run served --megabytes 400 --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import maskreg
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.transfer.pull import pull
from maskreg.settings import Remote, Settings
from tests.checkpoints import make_checkpoint
from tests.servers import Postgres, SeaweedFS, start_postgres

BAR = 0.9
"""Rate by links that must be reached, of the rate without a service."""

TOY = Ref("team", "toy", "v1")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the figures, and exit 1 when the bar is missed."""
    parser = argparse.ArgumentParser("scripts/bench/run served", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400, help="of the checkpoint; the artifact is about half")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args(argv)
    server, database = SeaweedFS(), start_postgres()
    try:
        with tempfile.TemporaryDirectory(prefix="maskreg-served-", dir="/dev/shm") as folder:
            figures = measured(server, database, Path(folder), options.megabytes, options.rounds, options.jobs)
    finally:
        server.close()
        database.close()
    print(json.dumps(figures, indent=2))
    return 0 if float(str(figures["ratio"])) >= BAR else 1


def measured(
    server: SeaweedFS, database: Postgres, folder: Path, megabytes: int, rounds: int, jobs: int
) -> dict[str, object]:
    """Rates of both ways in MB/s, their ratio, and the artifact's bytes."""
    os.environ.update({**server.env(), "MASKREG_HOME": str(folder / "none")})
    url = f"s3://{server.new_bucket()}/team"
    space = maskreg.Workspace(Settings(home=folder / "ada", config_path=folder / "ada.toml"))
    maskreg.remotes.add("s3", url, workspace=space)
    size = published(space, folder, megabytes)
    space.close()
    seconds: dict[str, list[float]] = {"direct": [], "by links": []}
    with serving(url, database) as (address, token):
        os.environ["MASKREG_TOKEN"] = token
        remotes = {"direct": Remote("s3", url), "by links": Remote("lab", address)}
        for number in range(rounds + 1):
            for name, remote in remotes.items():
                taken = _pulled(remote, folder / "bob", jobs)
                if number:  # the first fills caches
                    seconds[name].append(taken)
    rates = {name: size / 1e6 / statistics.median(times) for name, times in seconds.items()}
    best = {name: size / 1e6 / min(times) for name, times in seconds.items()}
    return {
        "bytes": size,
        "rounds": rounds,
        "jobs": jobs,
        "median MB/s": {name: round(rate, 1) for name, rate in rates.items()},
        "best MB/s": {name: round(rate, 1) for name, rate in best.items()},
        "ratio": round(rates["by links"] / rates["direct"], 3),
    }


def published(space: maskreg.Workspace, folder: Path, megabytes: int, ref: Ref = TOY, seed: int = 0) -> int:
    """Push an artifact of two random checkpoints to every remote of a workspace.

    Args:
        space: the workspace.
        folder: for the checkpoints, which are removed.
        megabytes: of one checkpoint; the artifact has about half.
        ref: its name.
        seed: of the random numbers.

    Returns:
        Its bytes.
    """
    rng = np.random.default_rng(seed)
    before = rng.integers(0x3C00, 0x3E00, (megabytes, 1 << 19), dtype=np.uint16)
    after = before ^ (rng.random(before.shape, dtype=np.float32) < 0.5).astype(np.uint16) * rng.integers(
        1, 64, before.shape, dtype=np.uint16
    )
    source, target = (
        make_checkpoint(folder / name, {"w": ("BF16", bits)}) for name, bits in (("s", before), ("t", after))
    )
    stored = maskreg.extract(source, target, ref, workspace=space)
    for path in (source, target):
        shutil.rmtree(path)
    for remote in space.settings.remotes:
        maskreg.push(ref, remote=remote, workspace=space)
    return space.local.artifact(stored.digest).manifest.size


def _pulled(remote: Remote, home: Path, jobs: int) -> float:
    shutil.rmtree(home, ignore_errors=True)
    settings = Settings(home=home, config_path=home / "config.toml")
    with Registry.local(settings) as local, Registry.remote(remote) as source:
        start = time.perf_counter()
        pull(local, source, TOY, jobs=jobs)
        return time.perf_counter() - start


@contextmanager
def serving(url: str, database: Postgres, *options: str) -> Iterator[tuple[str, str]]:
    """A server over a store, and the token of its admin; with these options beside."""
    catalog = database.new_database()
    program = [sys.executable, "-m", "maskreg"]
    subprocess.run([*program, "db", "upgrade", "--catalog", catalog], check=True, stdout=subprocess.DEVNULL)
    command = [*program, "serve", "--port", "0", "--json", "--store", url, "--catalog", catalog, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        row = json.loads(process.stdout.readline())
        yield row["url"], row["token"]
    finally:
        process.terminate()
        process.wait()

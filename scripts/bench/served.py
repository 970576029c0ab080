"""Pulling through a service by signed links, beside pulling from the bucket itself, in one run.

One server in a process of its own, over SeaweedFS; both ways fetch the same artifact into an empty home, in turn. The
server reads a new artifact back once to verify it; that is over before the first pull, so that nothing of it is
measured. Beside the rates stand the CPU seconds of client and server and the requests that the server got, which depend
less on what else the machine does.

    scripts/bench/run served --megabytes 400 --rounds 9
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
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import numpy as np

import maskreg
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.transfer.pull import pull
from maskreg.settings import Remote, Settings
from maskreg.store.http import HttpStore
from maskreg.store.message import Message
from scripts.bench.processes import cpu_seconds
from tests.checkpoints import make_checkpoint
from tests.servers import Postgres, SeaweedFS, start_postgres

BAR = 0.9
"""Rate by links that must be reached, of the rate without a service."""

TOY = Ref("team", "toy", "v1")


class Server(NamedTuple):
    """A server that runs.

    Attributes:
        url: where it listens.
        token: of its admin.
        pid: of its process.
    """

    url: str
    token: str
    pid: int


class Pull(NamedTuple):
    """What a pull took.

    Attributes:
        seconds: from its beginning to its end.
        client_cpu, server_cpu: seconds of CPU time.
        requests: that the server got.
    """

    seconds: float
    client_cpu: float
    server_cpu: float
    requests: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the figures, and exit 1 when the bar is missed."""
    parser = argparse.ArgumentParser("scripts/bench/run served", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400, help="of the checkpoint; the artifact is about half")
    parser.add_argument("--rounds", type=int, default=9)
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
    pulls: dict[str, list[Pull]] = {"direct": [], "by links": []}
    with serving(url, database) as lab:
        os.environ["MASKREG_TOKEN"] = lab.token
        remotes = {"direct": Remote("s3", url), "by links": Remote("lab", lab.url)}
        _wait_for_verification(lab.url)
        for number in range(rounds + 1):
            for name, remote in remotes.items():
                pull = _pulled(remote, folder / "bob", jobs, lab)
                if number:  # the first fills caches
                    pulls[name].append(pull)
    rates = {name: size / 1e6 / _median(rows, "seconds") for name, rows in pulls.items()}
    best = {name: size / 1e6 / min(pull.seconds for pull in rows) for name, rows in pulls.items()}
    figures = {
        what: {name: round(_median(rows, what), 3) for name, rows in pulls.items()}
        for what in ("client_cpu", "server_cpu", "requests")
    }
    return {
        "bytes": size,
        "rounds": rounds,
        "jobs": jobs,
        "load average": round(os.getloadavg()[0], 1),
        "median MB/s": {name: round(rate, 1) for name, rate in rates.items()},
        "best MB/s": {name: round(rate, 1) for name, rate in best.items()},
        "median CPU seconds of the client": figures["client_cpu"],
        "median CPU seconds of the server": figures["server_cpu"],
        "requests to the server": figures["requests"],
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


def _median(pulls: Sequence[Pull], what: str) -> float:
    return statistics.median(float(getattr(pull, what)) for pull in pulls)


def _wait_for_verification(url: str) -> None:
    with closing(HttpStore(url)) as store, Registry.remote(Remote("lab", url)) as remote:
        digest = remote.resolve(TOY).digest
        store.want_verified(digest)
        while store.connection.document(Message("GET", f"/artifacts/{digest}"))["waits_for_verification"]:
            time.sleep(0.1)


def _pulled(remote: Remote, home: Path, jobs: int, server: Server) -> Pull:
    shutil.rmtree(home, ignore_errors=True)
    settings = Settings(home=home, config_path=home / "config.toml")
    served, requests = cpu_seconds(server.pid), _requests(server)
    with Registry.local(settings) as local, Registry.remote(remote) as source:
        start, own = time.perf_counter(), time.process_time()
        pull(local, source, TOY, jobs=jobs)
        seconds, own = time.perf_counter() - start, time.process_time() - own
    return Pull(seconds, own, cpu_seconds(server.pid) - served, _requests(server) - requests)


def _requests(server: Server) -> int:
    asked = Request(f"{server.url}/metrics", headers={"Authorization": f"Bearer {server.token}"})
    with urlopen(asked) as answer:
        lines = answer.read().decode().splitlines()
    rows = [line for line in lines if line.startswith("maskreg_http_requests_total{") and '"/metrics"' not in line]
    return int(sum(float(row.rpartition(" ")[2]) for row in rows))


@contextmanager
def serving(url: str, database: Postgres, *options: str) -> Iterator[Server]:
    """A server over a store; with these options beside."""
    catalog = database.new_database()
    program = [sys.executable, "-m", "maskreg"]
    subprocess.run([*program, "db", "upgrade", "--catalog", catalog], check=True, stdout=subprocess.DEVNULL)
    command = [*program, "serve", "--port", "0", "--json", "--store", url, "--catalog", catalog, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        row = json.loads(process.stdout.readline())
        yield Server(row["url"], row["token"], process.pid)
    finally:
        process.terminate()
        process.wait()

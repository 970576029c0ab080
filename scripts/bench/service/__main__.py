"""Measures a server with many artifacts on PostgreSQL, beside MLflow's registry on the same database server.

  python -m scripts.bench.service --count 100000 --mlflow ~/mlflow/bin/mlflow --out figures.json

Both servers run two workers and are asked in turns, so that other work on the machine disturbs both alike. The load
average stands beside each row: with two cores, anything above 2 is time that somebody else took. The CPU time of a
request is the server's alone, and suffers less from that. Last stands what a request costs in SQL statements and reads
of the store, which nothing else changes. PostgreSQL is a throw-away server that does not sync.

--favor, as root, gives servers, database and clients real-time priority: other work of the machine waits for them, as
if it were theirs.

MLflow is no dependency: install it into an environment of its own (pip install mlflow 'psycopg[binary]').
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from scripts.bench.service import peer
from scripts.bench.service.costs import costs
from scripts.bench.service.filling import fill
from scripts.bench.service.load import Load, family, memory_mib, press
from tests.servers import Postgres, find_program, free_ports

ROUTES = ("list", "family", "name", "tag", "artifact", "history")
WORKERS = 2


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="artifacts")
    parser.add_argument("--seconds", type=float, default=60, help="length of the search at 50 requests a second")
    parser.add_argument(
        "--soak",
        type=int,
        nargs="*",
        default=(500, 2_500, 5_000, 10_000),
        help="looks at memory, each after so many requests",
    )
    parser.add_argument("--mlflow", type=Path, help="MLflow's program; without it the peer is left out")
    parser.add_argument("--favor", action="store_true", help="take precedence over other work; needs root")
    parser.add_argument("--folder", type=Path, help="where the store is made; by default a temporary folder")
    parser.add_argument("--out", type=Path, help="file for the figures, as JSON")
    return parser.parse_args()


def favor(pid: int) -> None:
    """Give a process, those below it and all that they start precedence over all others of the machine."""
    for member in family(pid):
        for task in Path(f"/proc/{member}/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(1))


@contextmanager
def running(process: subprocess.Popen[bytes], url: str, path: str) -> Iterator[int]:
    """Wait until a server answers; end it afterwards."""
    try:
        end = time.monotonic() + 180
        while True:
            try:
                if httpx2.get(f"{url}{path}", timeout=5).status_code == 200:
                    break
            except httpx2.HTTPError:
                if process.poll() is not None or time.monotonic() > end:
                    raise
            time.sleep(0.3)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


@contextmanager
def maskreg(folder: Path, catalog: str, port: int) -> Iterator[tuple[int, str]]:
    """A server of the filled registry: its first process, and the token of its admin."""
    command = [str(Path(sys.executable).parent / "maskreg"), "serve", "--json", "--port", str(port)]
    command += ["--store", str(folder / "store"), "--catalog", catalog, "--workers", str(WORKERS)]
    own = {**os.environ, "MASKREG_HOME": str(folder / "home"), "MASKREG_CONFIG": str(folder / "config.toml")}
    with (folder / "maskreg.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=own, start_new_session=True)
    assert process.stdout is not None
    token = json.loads(process.stdout.readline())["token"]
    with running(process, f"http://127.0.0.1:{port}", "/readyz") as pid:
        yield pid, token


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    """All figures."""
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    server = Postgres(find_program("initdb", newest, "apt-get install -y postgresql").resolve().parent)
    figures: dict[str, object] = {"artifacts": arguments.count, "workers": WORKERS, "cpus": os.cpu_count()}
    with ExitStack() as stack:
        stack.callback(server.close)
        catalog = server.new_database()
        started = time.monotonic()
        digests = fill(folder / "store", catalog, arguments.count)
        figures["filled_s"] = round(time.monotonic() - started, 1)
        (folder / "digests").write_text("\n".join(digests))
        subprocess.run([Path(sys.executable).parent / "maskreg", "db", "upgrade", "--catalog", catalog], check=True)
        peer.settle(catalog.replace("+psycopg", ""))
        if arguments.mlflow:
            url = server.new_database().replace("+psycopg", "")
            peer.fill(arguments.mlflow, url, arguments.count)
        if arguments.favor:
            favor(int((server._dir / "data" / "postmaster.pid").read_text().split()[0]))
            favor(os.getpid())
        port, other = free_ports(2)
        ours, theirs = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{other}"
        pid, token = stack.enter_context(maskreg(folder, catalog, port))
        os.environ |= {
            "BENCH_TOKEN": token,
            "BENCH_COUNT": str(arguments.count),
            "BENCH_DIGESTS": str(folder / "digests"),
            "MASKREG_HOME": str(folder / "here"),
            "MASKREG_CONFIG": str(folder / "config.toml"),
        }
        if arguments.mlflow:
            process = peer.start(arguments.mlflow, url, other, folder, WORKERS)
            their_pid = stack.enter_context(running(process, theirs, "/health"))
        # Both have started, and ours has looked through its store, as it does every five minutes.
        while not (folder / "home" / "follow.lock.left-out.json").exists():
            time.sleep(0.3)
        press("Reader", ["search"], ours, pid, users=4, pace=5, seconds=5)
        # A process of ours holds an artifact's figures against its tensor table when it shows them first.
        figures["first looks"] = shown("first", press("Reader", ["artifact"], ours, pid, users=10, pace=2, seconds=20))
        figures["search"] = shown(
            "search", press("Reader", ["search"], ours, pid, users=50, pace=1, seconds=arguments.seconds)
        )
        peers = [("maskreg", "Reader", ours, pid)]
        if arguments.mlflow:
            peers.append(("mlflow", "Peer", theirs, their_pid))
        figures["routes"] = by_route(peers)
        figures["costs"] = [asdict(row) for row in costs(folder / "store", catalog, token, digests, arguments.count)]
        figures["memory"] = soak(ours, pid, arguments.soak)
    return figures


def by_route(peers: list[tuple[str, str, str, int]]) -> list[dict[str, object]]:
    """Loads of each route, of each server in turn.

    Args:
        peers: name, class of its clients, address and first process of each server.
    """
    rows = []
    for route in ROUTES:
        for name, user, address, pid in peers:
            load = press(user, [route], address, pid, users=10, pace=1, seconds=15)
            rows.append({"server": name, **shown(name, load)})
    return rows


def soak(url: str, pid: int, looks: Sequence[int]) -> dict[str, object]:
    """Memory of a server that answers requests of every kind, after so many of them."""
    memory, done, failures = {0: round(memory_mib(pid), 1)}, 0, 0
    for count in looks:
        load = press("Reader", ["search", *ROUTES], url, pid, users=20, pace=5, seconds=count, requests=count - done)
        shown("soak", load)
        done, failures = done + load.requests, failures + load.failures
        memory[done] = load.memory
    return {"failures": failures, "mib": memory}


def shown(title: str, load: Load) -> dict[str, object]:
    """The figures of a load; printed as well."""
    print(f"{title:8} {load}", flush=True)
    return asdict(load)


def main() -> None:
    """Measure, and write the figures."""
    arguments = parsed()
    with TemporaryDirectory(prefix="maskreg-bench-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        figures = measure(arguments, folder)
    text = json.dumps(figures, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()

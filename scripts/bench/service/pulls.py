"""Pulls in parallel through a server, beside one client that reads the store itself, in one run.

  python -m scripts.bench.service.pulls --out pulls.json

Each client is a process with an empty home in memory, and begins when all are ready. A pull ends when every object was
hashed and is in place. Over a folder, the bytes come from the server; over a bucket in SeaweedFS, by signed links from
the bucket. The rate is all bytes by the time from the first client's begin to the last one's end.
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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import maskreg
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.transfer.pull import pull
from maskreg.settings import Remote, Settings
from scripts.bench.served import published, serving
from tests.servers import SeaweedFS, start_postgres

CLIENTS = 8

_OPTIONS = ("--rate", "0", "--log-format", "text")


def main() -> None:
    """Measure, and print the figures; with ``--pull``, be one of the clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=138, help="of a checkpoint; its artifact has about a third")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="processes of the server")
    parser.add_argument("--out", type=Path, help="file for the figures, as JSON")
    parser.add_argument("--pull", nargs=3, metavar=("URL", "REF", "HOME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pull:
        url, ref, home = options.pull
        client(url, Ref.parse(ref), Path(home))
        return
    with tempfile.TemporaryDirectory(prefix="maskreg-pulls-", dir="/dev/shm") as folder:
        text = json.dumps(measured(Path(folder), options), indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)


def measured(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Rates in MB/s by store and by who pulls."""
    refs = [Ref("team", f"toy-{number}", "v1") for number in range(CLIENTS)]
    rates: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        bucket, database = SeaweedFS(), start_postgres()
        stack.callback(bucket.close)
        stack.callback(database.close)
        os.environ.update({**bucket.env(), "MASKREG_HOME": str(folder / "none")})
        (folder / "store").mkdir()
        stores = {"folder": (folder / "store").as_uri(), "bucket": f"s3://{bucket.new_bucket()}/team"}
        with maskreg.Workspace(Settings(home=folder / "ada", config_path=folder / "ada.toml")) as space:
            for name, url in stores.items():
                maskreg.remotes.add(name, url, workspace=space)
            size = max(published(space, folder, options.megabytes, ref, seed) for seed, ref in enumerate(refs))
        shutil.rmtree(folder / "ada")
        for name, url in stores.items():
            with serving(url, database, *_OPTIONS, "--workers", str(options.workers)) as (address, token, _):
                os.environ["MASKREG_TOKEN"] = token
                rates[name] = _rates(folder, {"direct": url, "server": address}, refs, options.rounds, size)
    shown = {name: {who: round(statistics.median(row)) for who, row in rows.items()} for name, rows in rates.items()}
    facts = {"bytes": size, "clients": CLIENTS, "rounds": options.rounds, "cpus": os.cpu_count()}
    return {**facts, "busy": round(os.getloadavg()[0], 1), "MB/s": shown, "all MB/s": rates}


def _rates(
    folder: Path, urls: Mapping[str, str], refs: Sequence[Ref], rounds: int, size: int
) -> dict[str, list[float]]:
    ways: dict[str, tuple[str, Sequence[Ref]]] = {
        "one client, without the server": (urls["direct"], refs[:1]),
        "one client": (urls["server"], refs[:1]),
        f"{CLIENTS} clients, one artifact": (urls["server"], [refs[0]] * CLIENTS),
        f"{CLIENTS} clients, an artifact each": (urls["server"], refs),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, (url, chosen) in ways.items():
            seconds = _together(folder, url, chosen)
            print(f"{name:32} {len(chosen) * size / 1e6 / seconds:8.0f} MB/s", flush=True, file=sys.stderr)
            if number:  # the first fills caches
                rates[name].append(round(len(chosen) * size / 1e6 / seconds, 1))
    return rates


def _together(folder: Path, url: str, refs: Sequence[Ref]) -> float:
    """Seconds from the first begin to the last end of clients that pull at the same time."""
    homes = [folder / f"home-{number}" for number in range(len(refs))]
    clients = [_started(url, ref, home) for ref, home in zip(refs, homes, strict=True)]
    for process in clients:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in clients:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    spans = [json.loads(process.communicate()[0]) for process in clients]
    assert not any(process.returncode for process in clients)
    for home in homes:
        shutil.rmtree(home)
    return float(max(end for _, end in spans) - min(begin for begin, _ in spans))


def _started(url: str, ref: Ref, home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "scripts.bench.service.pulls", "--pull", url, str(ref), str(home)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def client(url: str, ref: Ref, home: Path) -> None:
    """Pull when told to; print when the pull began and ended, by the clock that all processes share."""
    settings = Settings(home=home, config_path=home / "config.toml")
    with Registry.local(settings) as local, Registry.remote(Remote("from", url)) as source:
        assert source.uuid
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.clock_gettime(time.CLOCK_MONOTONIC)
        pull(local, source, ref)
        print(json.dumps([begin, time.clock_gettime(time.CLOCK_MONOTONIC)]))


if __name__ == "__main__":
    main()

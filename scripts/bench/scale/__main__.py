"""Measures searches, pushes and changes of names with a catalog of very many artifacts on PostgreSQL.

  python -m scripts.bench.scale --artifacts 1000000
  python -m scripts.bench.scale.collecting 10000 50000 100000

The database is a throw-away server that does not sync. A million artifacts have ten million tags, and take 11 GB of
disk and half an hour of CPU time to write and index. With --url, it is an empty database that is filled and stays, or
one that was filled so before. The second command measures the memory of a garbage collection.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from maskreg.catalog.sql import current
from scripts.bench.scale.filling import fill_postgres
from scripts.bench.scale.pushing import work_costs
from scripts.bench.scale.searching import search_costs
from tests.servers import start_postgres


def main() -> None:
    """Fill, measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=15, help="of each kind")
    parser.add_argument("--url", help="postgresql+psycopg://USER@HOST/DATABASE")
    arguments = parser.parse_args()
    with _database(arguments.url) as url:
        if current(url) is None:
            fill_postgres(url, arguments.artifacts, registry="bench")
        with TemporaryDirectory(prefix="maskreg-bench-") as folder:
            for work in work_costs(url, Path(folder)):
                print(json.dumps(asdict(work)), flush=True)
        for cost in search_costs(url, arguments.artifacts, arguments.requests):
            print(json.dumps(asdict(cost)), flush=True)


@contextmanager
def _database(url: str | None) -> Iterator[str]:
    if url:
        yield url
        return
    server = start_postgres()
    try:
        yield server.new_database()
    finally:
        server.close()


if __name__ == "__main__":
    main()

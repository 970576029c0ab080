"""Measures searches, pushes and changes of names with a catalog of very many artifacts on PostgreSQL.

  python -m scripts.bench.scale --artifacts 1000000
  python -m scripts.bench.scale.collecting 10000 50000 100000

The database is a throw-away server that does not sync. A million artifacts have ten million tags, and take 9 GB of
disk and half an hour of CPU time to write and index. The second command measures the memory of a garbage collection.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.bench.scale.filling import fill_postgres
from scripts.bench.scale.pushing import work_costs
from scripts.bench.scale.searching import search_costs
from tests.servers import start_postgres


def main() -> None:
    """Fill, measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=15, help="of each kind")
    arguments = parser.parse_args()
    server = start_postgres()
    try:
        url = server.new_database()
        fill_postgres(url, arguments.artifacts, registry="bench")
        with TemporaryDirectory(prefix="maskreg-bench-") as folder:
            for work in work_costs(url, Path(folder)):
                print(json.dumps(asdict(work)), flush=True)
        for cost in search_costs(url, arguments.artifacts, arguments.requests):
            print(json.dumps(asdict(cost)), flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()

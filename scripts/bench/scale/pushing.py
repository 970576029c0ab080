"""What a push and a search of a registry cost whose catalog is large, without the time of a network.

Requests to the store are counted: what one of them takes is the store's own. The rest is CPU time of this process and
of the database, and the wall time of all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import event, text

from maskreg.catalog import Query
from maskreg.catalog.sql import SqlCatalog
from maskreg.catalog.sql.writing import change_filled
from maskreg.ref import Card, Ref
from maskreg.registry import Registry
from maskreg.registry.tags import annotate, remove, restore, tag
from maskreg.registry.transfer.push import push
from maskreg.settings import Settings
from maskreg.store import MemoryStore, ObjectInfo
from scripts.bench.scale.filling import TOPICS
from tests.artifact.making import pair, write


@dataclass(frozen=True)
class Work:
    """What one command costs, on average.

    Attributes:
        name: of the command.
        wall_ms: milliseconds.
        cpu_ms: of this process, milliseconds.
        database_ms: CPU time of the database's processes that served it, milliseconds.
        statements: sent to the database.
        requests: to the store, by kind.
    """

    name: str
    wall_ms: float
    cpu_ms: float
    database_ms: float
    statements: float
    requests: dict[str, float]


class Counting:
    """A store in memory that counts what it is asked."""

    def __init__(self) -> None:
        self._inner = MemoryStore()
        self.url = self._inner.url
        self.asked: Counter[str] = Counter()

    def get(self, key: str, *, max_bytes: int) -> bytes:
        """The whole object."""
        self.asked["get"] += 1
        return self._inner.get(key, max_bytes=max_bytes)

    def head(self, key: str) -> ObjectInfo | None:
        """The object's size and time."""
        self.asked["head"] += 1
        return self._inner.head(key)

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self.asked["put"] += 1
        self._inner.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none."""
        self.asked["create"] += 1
        return self._inner.create(key, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects in key order."""
        self.asked["list"] += 1
        return self._inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        self.asked["delete"] += 1
        self._inner.delete(keys)

    def close(self) -> None:
        """Do nothing."""

    def clock(self) -> datetime:
        """The time."""
        return self._inner.clock()


def work_costs(url: str, folder: Path, rounds: int = 10) -> Iterator[Work]:
    """Push, search and change names of a registry whose catalog is at this URL.

    Args:
        url: a catalog that was filled for a bench, on this machine; it becomes that of a new registry.
        folder: empty; for the local registry.
        rounds: how often each command runs, after one that is not counted.
    """
    store = Counting()
    with (
        Registry.local(Settings(home=folder, config_path=folder / "config.toml")) as local,
        Registry(store, name="large", catalog_url=url, by="bench") as remote,
    ):
        with SqlCatalog.open(url) as catalog, catalog._write() as connection:
            change_filled(connection, source=remote.ensure_uuid(), followed=0)
        assert isinstance(remote.catalog, SqlCatalog)
        statements: list[str] = []
        event.listen(remote.catalog._engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
        refs = [Ref.parse(f"bench-{time.time_ns()}/small-{number}") for number in range(rounds + 1)]
        for number, ref in enumerate(refs):
            local.publish(ref, write(folder, {"w": pair(number)["scale"]}, parts=("mask",)), card=Card(family="small"))
        commands: dict[str, Callable[[int], object]] = {
            "push a small artifact": lambda n: push(local, remote, refs[n], jobs=1),
            "search: the newest 50": lambda n: remote.search(Query(limit=50)),
            "search: a word": lambda n: remote.search(Query(text=TOPICS[n], limit=50)),
            "show a tag": lambda n: remote.resolve(refs[n]),
            "history of a tag": lambda n: remote.history(refs[n]),
            "tag": lambda n: tag(remote, refs[n], refs[n].with_tag("other")),
            "annotate": lambda n: annotate(remote, refs[n], description="another"),
            "rm": lambda n: remove(remote, refs[n]),
            "restore": lambda n: restore(remote, refs[n]),
        }
        for name, command in commands.items():
            wall = cpu = database = 0.0
            for number in range(rounds + 1):
                if number == 1:
                    wall, cpu, database = -time.perf_counter(), -time.process_time(), -_database_s(remote.catalog)
                    statements.clear()
                    store.asked.clear()
                command(number)
            wall, cpu = wall + time.perf_counter(), cpu + time.process_time()
            asked_database = len(statements) / rounds
            database += _database_s(remote.catalog)
            asked = {kind: round(count / rounds, 1) for kind, count in sorted(store.asked.items())}
            per_round = 1e3 / rounds
            yield Work(name, wall * per_round, cpu * per_round, database * per_round, asked_database, asked)


def _database_s(catalog: SqlCatalog) -> float:
    served = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    with catalog._engine.connect() as connection:
        pids = connection.execute(text(served)).scalars().all()
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9

"""What one request costs, route by route: SQL statements, reads of the store, and CPU time, without a network.

Statements and reads do not depend on what else the machine does, so a row that grew tells of a change in the code.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

from fastapi.testclient import TestClient
from sqlalchemy import Engine, event

from maskreg.service.app import create_app
from maskreg.service.start import Options, open_service
from maskreg.store import FileStore
from scripts.bench.service.filling import FAMILIES, SHOWN, TAGS, name_of, project_of

_API = "/api/v1"
_READS = ("get", "get_into", "head", "list")


@dataclass(frozen=True)
class Cost:
    """What a request of one kind costs, on average.

    Attributes:
        name: of the requests.
        statements: sent to the database.
        reads: of the store, and of the server's memory of what it has seen there.
        cpu: milliseconds of this process, the client included.
    """

    name: str
    statements: float
    reads: float
    cpu: float


def costs(folder: Path, catalog: str, token: str, digests: list[str], count: int, requests: int = 200) -> list[Cost]:
    """Send requests to an application in this process, one after another.

    Args:
        folder: of the store.
        catalog: its catalog.
        token: of somebody who may read everything.
        digests: artifacts that are whole.
        count: artifacts in all.
        requests: of each kind, after as many that warm up.
    """

    def tag() -> str:
        number = random.randrange(count)
        return f"/projects/{project_of(number)}/refs/{name_of(number)}/v{number % TAGS}"

    paths: dict[str, Callable[[], str]] = {
        "the newest": lambda: "/artifacts",
        "of a family": lambda: f"/artifacts?family={random.choice(FAMILIES)}",
        "part of a name": lambda: f"/artifacts?text=run-{random.randrange(count // TAGS):05d}",
        "what a tag points to": tag,
        "history": lambda: f"{tag()}/history",
        "one artifact": lambda: f"/artifacts/{random.choice(digests[:SHOWN])}",
    }
    logging.getLogger("maskreg").setLevel(logging.WARNING)
    rows = []
    with open_service(Options(store=str(folder), catalog=catalog, rate=0)) as service:
        # No follower looks through the store meanwhile: the application is not started as a context.
        app, headers = create_app(service), {"Authorization": f"Bearer {token}"}
        client = TestClient(app, base_url="http://127.0.0.1", headers=headers)
        for name, path in paths.items():
            for _ in range(requests):
                assert client.get(_API + path()).status_code == 200
            with _counted() as counts:
                started = time.process_time()
                for _ in range(requests):
                    client.get(_API + path())
                cpu = (time.process_time() - started) / requests * 1000
            rows.append(Cost(name, counts["statements"] / requests, counts["reads"] / requests, round(cpu, 2)))
            print(f"cost     {asdict(rows[-1])}", flush=True)
    return rows


@contextmanager
def _counted() -> Iterator[dict[str, int]]:
    counts = {"statements": 0, "reads": 0}

    def sent(*_: object) -> None:
        counts["statements"] += 1

    def counting(method: Callable[..., object]) -> Callable[..., object]:
        def read(*arguments: object, **named: object) -> object:
            counts["reads"] += 1
            return method(*arguments, **named)

        return read

    event.listen(Engine, "before_cursor_execute", sent)
    with ExitStack() as stack:
        stack.callback(event.remove, Engine, "before_cursor_execute", sent)
        for name in _READS:
            stack.enter_context(mock.patch.object(FileStore, name, counting(getattr(FileStore, name))))
        yield counts

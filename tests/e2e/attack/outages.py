"""A service whose database or bucket goes away under its clients, again and again.

::

    for each number
      a new artifact                  so that there is something to send
      push, then pull                 during one of them, after a random time, for a random time:
        the bucket or the database      crashes and is started again, or hangs and goes on
        others ask meanwhile            each is answered 200, or 503 with a problem
        the client                      ends with 0, or with 69
      the same command again          ends well: nothing but the part itself has to be started again
      look                            the tag has one entry, everything that was pushed before is there, no log is torn,
                                      and the artifact is whole on both sides
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import httpx2

from maskreg.errors import UnavailableError
from maskreg.registry import Registry
from maskreg.service.auth.database import upgrade_server
from maskreg.service.context import Service
from maskreg.settings import Remote, StoreOptions
from maskreg.store.s3 import S3Store
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.people import HANG_SECONDS
from tests.e2e.attack.serving import Command, ServedAttack, exit_code, in_background
from tests.servers import Postgres, S3Server
from tests.service.serving import headers, service_on

KINDS = tuple(itertools.product(("bucket", "database"), ("crashes", "hangs")))
"""What goes away and how; the number of an outage says which of them it is."""

ASKERS = 4
"""How many others ask the service meanwhile."""

PATHS = ("/api/v1/artifacts", "/api/v1/objects/maskreg.json", "/readyz")
"""What they ask."""


class Outages(ServedAttack):
    """Crashes and pauses of the bucket and the database of a service."""

    name = "outages"

    def __init__(self, folder: Path, bucket: S3Server, database: Postgres) -> None:
        """Start the service on a new bucket and a new database."""
        self._bucket, self._database = bucket, database
        self._store = S3Store(bucket.new_bucket(), "team", StoreOptions(endpoint=bucket.endpoint))
        self._catalog = database.new_database()
        upgrade_server(self._catalog)
        super().__init__(folder)

    def _service(self) -> Service:
        # The server's process keeps these variables.
        os.environ.update(self._bucket.env())
        return service_on(self._store, self._folder / "served", self._catalog, self._catalog)

    @contextmanager
    def _registry(self) -> Iterator[Registry]:
        remote = Remote("bucket", self._store.url, options=StoreOptions(endpoint=self._bucket.endpoint))
        with patch.dict(os.environ, self._bucket.env()), Registry.remote(remote) as registry:
            # A server that has just begun again refuses some reads for a while, longer on a busy machine.
            for seconds in (0.5, 1, 2, 4, 8):
                with suppress(UnavailableError):
                    list(registry.refs.audit())
                    break
                time.sleep(seconds)
            yield registry

    def _strike(self, rng: random.Random, number: int, verb: str, command: Command, tally: Tally) -> Iterator[str]:
        name, how = KINDS[number % len(KINDS)]
        part = self._bucket if name == "bucket" else self._database
        begin, end = (part.kill, part.restart) if how == "crashes" else (part.stop, part.cont)
        pid = in_background(command)
        time.sleep(self._moment(rng))
        begin()
        with httpx2.Client(base_url=self._server.url, timeout=HANG_SECONDS) as client:
            with ThreadPoolExecutor(ASKERS) as pool:
                answers = [
                    pool.submit(client.get, PATHS[asker % len(PATHS)], headers=headers("reader-token"))
                    for asker in range(ASKERS)
                ]
                time.sleep(rng.uniform(0.2, 1.5))
                end()
            statuses = [answer.result().status_code for answer in answers]
        status = exit_code(pid)
        tally.counts[f"{name} {how}: {verb} exits {status}"] += 1
        for answer in statuses:
            tally.counts[f"{name} {how}: others are answered {answer}"] += 1
        if status not in (0, 69):
            yield f"{verb} while the {name} {how} exits {status}"
        if set(statuses) - {200, 503}:
            yield f"others are answered {statuses} while the {name} {how}"
        if status == 0 and verb == "push":
            self._pushed[f"v{number}"] = 1
            yield from self._tags()

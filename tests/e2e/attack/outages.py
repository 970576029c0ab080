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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import httpx2

from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.audit.verify import verify
from maskreg.service.context import Service
from maskreg.service.upgrading import upgrade_server
from maskreg.settings import Remote, StoreOptions
from maskreg.store.s3 import S3Store
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.people import HANG_SECONDS, Member, Said
from tests.e2e.attack.served import Server
from tests.servers import Postgres, S3Server
from tests.service.serving import headers, service_on

KINDS = tuple(itertools.product(("bucket", "database"), ("crashes", "hangs")))
"""What goes away and how; the number of an outage says which one it is."""

ASKERS = 4
"""How many others ask the service meanwhile."""

_SHAPE = (256, 256)


class Outages:
    """One service on a bucket and a database, a writer and a reader."""

    def __init__(self, folder: Path, bucket: S3Server, database: Postgres) -> None:
        """Start the service, and give both people a home and a token."""
        self._folder, self._bucket, self._database = folder, bucket, database
        self._remote = Remote(
            "bucket", f"s3://{bucket.new_bucket()}/team", options=StoreOptions(endpoint=bucket.endpoint)
        )
        self._catalog = database.new_database()
        upgrade_server(self._catalog)
        self._server = Server(self._service)
        self._ada = Member(folder / "ada", {"MASKREG_TOKEN": "writer-token"})
        self._bob = Member(folder / "bob", {"MASKREG_TOKEN": "reader-token"})
        self._source = make_checkpoint(folder / "source", {"w": bf16(_SHAPE, 0)})
        self._seconds = 0.5
        self._pushed: dict[str, int] = {}
        for member in (self._ada, self._bob):
            member.must("remote", "add", "lab", self._server.url)

    def _service(self) -> Service:
        # In the server's process, which keeps these variables.
        os.environ.update(self._bucket.env())
        name = self._remote.url.removeprefix("s3://").removesuffix("/team")
        store = S3Store(name, "team", self._remote.options)
        return service_on(store, self._folder / "served", self._catalog, self._catalog)

    def close(self) -> None:
        """End the service."""
        self._server.close()

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """One outage, the same command again, and a look."""
        rng = random.Random(f"{seed}/outages/{number}")
        ref = f"team/toy:v{number}"
        target = make_checkpoint(self._folder / f"target-{number}", {"w": moved(bf16(_SHAPE, 0), 0.4, number)})
        self._ada.must("extract", self._source, target, "--name", ref)
        steps: dict[str, Callable[[], Said]] = {
            "push": lambda: self._ada.run("push", ref),
            "pull": lambda: self._bob.run("pull", ref),
        }
        struck = rng.choice(list(steps))
        for verb, command in steps.items():
            if verb == struck:
                tally.faults += [f"{number}: {fault}" for fault in self._outage(rng, number, verb, command, tally)]
            started = time.monotonic()
            said = command()
            if said.status != 0:
                tally.faults.append(f"{number}: after the outage: {said}")
                return
            self._seconds = 0.9 * self._seconds + 0.1 * (time.monotonic() - started)
        tally.faults += [f"{number}: {fault}" for fault in self._torn(number)]

    def _outage(
        self, rng: random.Random, number: int, verb: str, command: Callable[[], Said], tally: Tally
    ) -> Iterator[str]:
        name, how = KINDS[number % len(KINDS)]
        part = self._bucket if name == "bucket" else self._database
        begin, end = (part.kill, part.restart) if how == "crashes" else (part.stop, part.cont)
        pid = os.fork()
        if pid == 0:
            os._exit(command().status)
        time.sleep(rng.uniform(0, 1.2) * self._seconds)
        begin()
        with httpx2.Client(base_url=self._server.url, timeout=HANG_SECONDS) as client:
            with ThreadPoolExecutor(ASKERS) as pool:
                paths = ("/api/v1/artifacts", "/api/v1/objects/maskreg.json", "/readyz")
                answers = [
                    pool.submit(client.get, path, headers=headers("reader-token"))
                    for path, _ in zip(itertools.cycle(paths), range(ASKERS), strict=False)
                ]
                time.sleep(rng.uniform(0.2, 1.5))
                end()
            statuses = [answer.result().status_code for answer in answers]
        _, waited = os.waitpid(pid, 0)
        status = os.waitstatus_to_exitcode(waited)
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

    def _tags(self) -> Iterator[str]:
        with patch.dict(os.environ, self._bucket.env()), Registry.remote(self._remote) as registry:
            numbers = {ref.tag: n for ref, n in registry.refs.numbers().items()}
            if numbers != self._pushed:
                yield f"the tags are {numbers}, and {self._pushed} were pushed"

    def _torn(self, number: int) -> Iterator[str]:
        self._pushed[f"v{number}"] = 1
        yield from self._tags()
        with patch.dict(os.environ, self._bucket.env()), Registry.remote(self._remote) as registry:
            yield from (str(error) for error in registry.refs.audit())
            yield from (str(damage) for damage in verify(registry, Ref("team", "toy", f"v{number}")).damaged)
        pulled = self._bob.run("verify", f"team/toy:v{number}")
        if pulled.status != 0:
            yield str(pulled)

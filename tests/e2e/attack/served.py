"""A service and its clients: one of them, its bucket or its database is struck during a push or a pull.

::

    for each number
      a new artifact                  so that there is something to send
      push, then pull                 during one of them, after a random time, one part is struck:
        the client or the server        is killed; the server begins anew, and the client goes on by itself
        the bucket or the database      crashes and is started again, or hangs and goes on; others ask meanwhile, and
                                        each is answered 200, or 503 with a problem
        the client                      ends with 0, or with 69
      the same command again          ends well: nothing but the part itself has to be started again
      look                            the tag has one entry, everything that was pushed before is there, no log is torn,
                                      and the artifact is whole on both sides
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import httpx2
import uvicorn

from maskreg.errors import UnavailableError
from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.index import RETRY_S
from maskreg.registry.verify import verify
from maskreg.service.app import create_app
from maskreg.service.auth.database import upgrade_server
from maskreg.service.context import Service
from maskreg.settings import Remote, Settings
from maskreg.store.s3 import S3Store
from tests.buckets import options_of
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.dying import exit_code, in_background
from tests.e2e.attack.people import HANG_SECONDS, Member
from tests.servers import Postgres, S3Server, free_ports
from tests.service.serving import headers, service_in, service_on

KILLS = (("client", "crashes"), ("server", "crashes"))
OUTAGES = (("bucket", "crashes"), ("database", "hangs"), ("bucket", "hangs"), ("database", "crashes"))
"""What is struck and how; the number of an attack says which of them it is."""

PATHS = ("/api/v1/artifacts", "/api/v1/objects/maskreg.json", "/readyz", "/api/v1/artifacts")
"""What others ask the service while its bucket or its database is away."""

VERIFY_EVERY = 20
"""Numbers between two looks at every byte of the server."""

_SHAPE = (256, 256)


class Server:
    """A server in a forked process, on one port."""

    def __init__(self, make: Callable[[], Service]) -> None:
        self._make = make
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        self._pid = 0
        self.restart()

    def restart(self) -> None:
        """Begin, or begin anew."""
        # Connections are taken from now on; while no server runs, they are refused.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._port))
            listener.listen(128)
            self._pid = os.fork()
            if self._pid == 0:
                self._serve(listener)

    def kill(self) -> None:
        """End it as a power failure of the process does."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _serve(self, listener: socket.socket) -> None:
        status = 1
        try:
            app = create_app(self._make())
            server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
            server.run(sockets=[listener])
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)


class Served:
    """One service, a writer and a reader; during every second push or pull of theirs, something is struck.

    The service is over a folder, or over a bucket and a database.
    """

    def __init__(self, folder: Path, bucket: S3Server | None = None, database: Postgres | None = None) -> None:
        """Start the service, and give both people a home and a token."""
        self._folder, self._bucket = folder, bucket
        self._parts: dict[str, S3Server | Postgres] = {}
        if bucket and database:
            self._parts = {"bucket": bucket, "database": database}
            self._store = S3Store(bucket.new_bucket(), "team", options_of(bucket))
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

    def close(self) -> None:
        """End the service."""
        self._server.kill()

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Push and pull one artifact, strike during one of the two, do it again, and look."""
        tally.faults += self._faults(random.Random(f"{seed}/served/{number}"), number, tally)

    def _faults(self, rng: random.Random, number: int, tally: Tally) -> Iterator[str]:
        ref = f"team/toy:v{number}"
        target = make_checkpoint(self._folder / f"target-{number}", {"w": moved(bf16(_SHAPE, 0), 0.4, number)})
        self._ada.must("extract", self._source, target, "--name", ref)
        struck = rng.choice(("push", "pull"))
        for verb, member in (("push", self._ada), ("pull", self._bob)):
            if verb == struck:
                yield from self._strike(rng, number, member, (verb, ref), tally)
            started = time.monotonic()
            said = member.run(verb, ref)
            if said.status != 0:
                yield f"the same command again: {said}"
                return
            if verb != struck:
                self._seconds = 0.9 * self._seconds + 0.1 * (time.monotonic() - started)
        self._pushed[f"v{number}"] = 1
        with self._registry() as registry:
            yield from self._tags(registry)
            yield from map(str, registry.refs.find_damage())
            all_bytes = number % VERIFY_EVERY == VERIFY_EVERY - 1
            yield from map(str, verify(registry, None if all_bytes else Ref.parse(ref)).damaged)
        pulled = self._bob.run("verify", ref)
        if pulled.status != 0:
            yield str(pulled)

    def _strike(
        self, rng: random.Random, number: int, member: Member, words: tuple[str, str], tally: Tally
    ) -> Iterator[str]:
        strikes = OUTAGES if self._parts else KILLS
        name, how = strikes[number % len(strikes)]
        pid = in_background(lambda: member.run(*words))
        # While the command runs, now and then after its end.
        time.sleep(rng.uniform(0, 1.2) * self._seconds)
        statuses: list[int] = []
        if name == "client":
            os.kill(pid, signal.SIGKILL)
        elif name == "server":
            self._server.kill()
            self._server.restart()
        else:
            part = self._parts[name]
            (part.kill if how == "crashes" else part.stop)()
            statuses = self._asked(rng, part.restart if how == "crashes" else part.cont)
            time.sleep(RETRY_S)
        status = exit_code(pid)
        tally.counts[f"{name} {how}: {words[0]} exits {status}"] += 1
        tally.counts.update(f"{name} {how}: others are answered {answer}" for answer in statuses)
        if status not in ((0, -signal.SIGKILL) if name == "client" else (0, 69)):
            yield f"{words[0]} while the {name} {how} exits {status}"
        if set(statuses) - {200, 503}:
            yield f"others are answered {statuses} while the {name} {how}"
        if status == 0 and words[0] == "push":
            self._pushed[f"v{number}"] = 1
            with self._registry() as registry:
                yield from self._tags(registry)

    def _asked(self, rng: random.Random, end: Callable[[], None]) -> list[int]:
        """What others are answered who ask before the end of an outage."""
        client = httpx2.Client(base_url=self._server.url, headers=headers("reader-token"), timeout=HANG_SECONDS)
        with client, ThreadPoolExecutor(len(PATHS)) as pool:
            answers = [pool.submit(client.get, path) for path in PATHS]
            time.sleep(rng.uniform(0.2, 1.5))
            end()
        return [answer.result().status_code for answer in answers]

    def _service(self) -> Service:
        if self._bucket is None:
            return service_in(self._folder / "served")
        # The server's process keeps these variables.
        os.environ.update(self._bucket.env())
        return service_on(self._store, self._folder / "served", self._catalog, self._catalog)

    @contextmanager
    def _registry(self) -> Iterator[Registry]:
        """What the server has, without the server."""
        if self._bucket is None:
            with Registry.local(Settings(home=self._folder / "served", config_path=Path("none.toml"))) as registry:
                yield registry
            return
        remote = Remote("bucket", self._store.url, options=options_of(self._bucket))
        with patch.dict(os.environ, self._bucket.env()), Registry.remote(remote) as registry:
            # A server that has just begun again refuses some reads for a while, longer on a busy machine.
            for seconds in (0.5, 1, 2, 4, 8):
                with suppress(UnavailableError):
                    list(registry.refs.find_damage())
                    break
                time.sleep(seconds)
            yield registry

    def _tags(self, registry: Registry) -> Iterator[str]:
        numbers = {ref.tag: n for ref, n in registry.refs.numbers().items()}
        if numbers != self._pushed:
            yield f"the tags are {numbers}, and {self._pushed} were pushed"

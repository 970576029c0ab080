"""A service and its clients, killed again and again in the middle of pushes and pulls.

::

    for each number
      a new artifact                  so that there is something to send
      push, then pull                 one of them is cut:
        the client is killed            after a random time
        the server is killed            after a random time, and begins anew; the client goes on by itself
      the same command again          ends well
      look                            the tag has one entry more, the artifact is whole on both sides, no log is torn,
                                      and everything that was pushed before is there
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.audit.verify import verify
from maskreg.service.app import create_app
from maskreg.service.context import Service
from maskreg.settings import Settings
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.dying import forked
from tests.e2e.attack.people import Member, Said
from tests.service.serving import service_in

VERIFY_EVERY = 20
"""Numbers between two looks at every byte of the server."""

_SHAPE = (256, 256)


class Server:
    """A server in a forked process, on a port that stays open while none runs."""

    def __init__(self, make: Callable[[], Service]) -> None:
        self._make = make
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pid = 0
        self.start()

    def start(self) -> None:
        """Begin, or begin anew."""
        self._pid = os.fork()
        if self._pid == 0:
            self._serve()

    def kill(self) -> None:
        """End it as a power failure of the process does."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._listener.close()

    def _serve(self) -> None:
        status = 1
        try:
            app = create_app(self._make())
            server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
            server.run(sockets=[self._listener])
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)


class ServedKills:
    """One service, a writer and a reader."""

    def __init__(self, folder: Path) -> None:
        """Start the server, and give both of them a home and a token."""
        self._folder = folder
        self._home = folder / "served"
        self._server = Server(lambda: service_in(self._home))
        self._ada = Member(folder / "ada", {"MASKREG_TOKEN": "writer-token"})
        self._bob = Member(folder / "bob", {"MASKREG_TOKEN": "reader-token"})
        self._source = make_checkpoint(folder / "source", {"w": bf16(_SHAPE, 0)})
        self._seconds = 0.5
        self._pushed: dict[str, int] = {}
        for member in (self._ada, self._bob):
            member.must("remote", "add", "lab", self._server.url)

    def close(self) -> None:
        """End the server."""
        self._server.close()

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Cut one push or pull, do it again, and look."""
        rng = random.Random(f"{seed}/served/{number}")
        ref = f"team/toy:v{number}"
        target = make_checkpoint(self._folder / f"target-{number}", {"w": moved(bf16(_SHAPE, 0), 0.4, number)})
        self._ada.must("extract", self._source, target, "--name", ref)
        cut_push, client = rng.random() < 0.6, rng.random() < 0.5
        started = time.monotonic()
        steps: list[tuple[str, bool, Callable[[], Said]]] = [
            ("push", cut_push, lambda: self._ada.run("push", ref)),
            ("pull", not cut_push, lambda: self._bob.run("pull", ref)),
        ]
        for verb, is_cut, command in steps:
            if is_cut:
                after = rng.uniform(0, 1.2) * self._seconds
                cut = self._client_killed if client else self._server_killed
                tally.counts[f"{verb}: {cut(command, after)}"] += 1
            said = command()
            if said.status != 0:
                tally.faults.append(f"{number}: {said}")
                return
            if not is_cut:
                self._seconds = 0.9 * self._seconds + 0.1 * (time.monotonic() - started)
        tally.faults += [f"{number}: {fault}" for fault in self._torn(number)]

    def _client_killed(self, command: Callable[[], Said], after: float) -> str:
        return "client killed" if forked(command, after=after).killed else "was done"

    def _server_killed(self, command: Callable[[], Said], after: float) -> str:
        pid = os.fork()
        if pid == 0:
            os._exit(command().status)
        time.sleep(after)
        self._server.kill()
        self._server.start()
        _, status = os.waitpid(pid, 0)
        return "server killed" + ("" if status == 0 else ", the client gave up")

    def _torn(self, number: int) -> Iterator[str]:
        with Registry.local(Settings(home=self._home, config_path=self._folder / "none.toml")) as registry:
            self._pushed[f"v{number}"] = 1
            numbers = {ref.tag: n for ref, n in registry.refs.numbers().items()}
            if numbers != self._pushed:
                yield f"the tags are {numbers}, and {self._pushed} were pushed"
            yield from (str(error) for error in registry.refs.audit())
            ref = None if number % VERIFY_EVERY == VERIFY_EVERY - 1 else Ref("team", "toy", f"v{number}")
            yield from (str(damage) for damage in verify(registry, ref).damaged)
        pulled = self._bob.run("verify", f"team/toy:v{number}")
        if pulled.status != 0:
            yield str(pulled)

"""A service in a process of its own, whose writer pushes and whose reader pulls, and what is struck while they do."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

import uvicorn

from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.registry.verify import verify
from maskreg.service.app import create_app
from maskreg.service.context import Service
from tests.checkpoints import bf16, make_checkpoint, moved
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.people import Member, Said
from tests.servers import free_ports

Command = Callable[[], Said]
"""A push or pull."""

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


class ServedAttack(ABC):
    """One service, a writer and a reader; every push or pull of theirs may be struck.

    Attributes:
        name: of the attack; its random numbers follow from it.
    """

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        """Start the service, and give both people a home and a token."""
        self._folder = folder
        self._server = Server(self._service)
        self._ada = Member(folder / "ada", {"MASKREG_TOKEN": "writer-token"})
        self._bob = Member(folder / "bob", {"MASKREG_TOKEN": "reader-token"})
        self._source = make_checkpoint(folder / "source", {"w": bf16(_SHAPE, 0)})
        self._seconds = 0.5
        self._pushed: dict[str, int] = {}
        for member in (self._ada, self._bob):
            member.must("remote", "add", "lab", self._server.url)

    @abstractmethod
    def _service(self) -> Service:
        """What the server serves; called in its process."""

    @abstractmethod
    def _registry(self) -> AbstractContextManager[Registry]:
        """What the server has, without the server."""

    @abstractmethod
    def _strike(self, rng: random.Random, number: int, verb: str, command: Command, tally: Tally) -> Iterator[str]:
        """Run a push or pull, and do harm meanwhile; gives what went wrong beside its end."""

    def _checked(self, number: int) -> Ref | None:
        """The artifact whose every byte is read after this number; None for all."""
        return Ref("team", "toy", f"v{number}")

    def close(self) -> None:
        """End the service."""
        self._server.kill()

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Push and pull one artifact, strike one of the two, do it again, and look."""
        rng = random.Random(f"{seed}/{self.name}/{number}")
        ref = f"team/toy:v{number}"
        target = make_checkpoint(self._folder / f"target-{number}", {"w": moved(bf16(_SHAPE, 0), 0.4, number)})
        self._ada.must("extract", self._source, target, "--name", ref)
        steps: dict[str, Command] = {
            "push": lambda: self._ada.run("push", ref),
            "pull": lambda: self._bob.run("pull", ref),
        }
        struck = rng.choice(list(steps))
        for verb, command in steps.items():
            if verb == struck:
                tally.faults += [f"{number}: {fault}" for fault in self._strike(rng, number, verb, command, tally)]
            started = time.monotonic()
            said = command()
            if said.status != 0:
                tally.faults.append(f"{number}: the same command again: {said}")
                return
            if verb != struck:
                self._seconds = 0.9 * self._seconds + 0.1 * (time.monotonic() - started)
        tally.faults += [f"{number}: {fault}" for fault in self._torn(number)]

    def _moment(self, rng: random.Random) -> float:
        """Seconds after which to strike: while a command runs, now and then after its end."""
        return rng.uniform(0, 1.2) * self._seconds

    def _tags(self) -> Iterator[str]:
        with self._registry() as registry:
            numbers = {ref.tag: n for ref, n in registry.refs.numbers().items()}
        if numbers != self._pushed:
            yield f"the tags are {numbers}, and {self._pushed} were pushed"

    def _torn(self, number: int) -> Iterator[str]:
        self._pushed[f"v{number}"] = 1
        yield from self._tags()
        with self._registry() as registry:
            yield from (str(error) for error in registry.refs.audit())
            yield from (str(damage) for damage in verify(registry, self._checked(number)).damaged)
        pulled = self._bob.run("verify", f"team/toy:v{number}")
        if pulled.status != 0:
            yield str(pulled)


def in_background(command: Command) -> int:
    """Run a command in a forked process, and give its process id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            said = command()
            status = said.status
            if status not in (0, 69):
                print(said, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def exit_code(pid: int) -> int:
    """Wait for a command in a forked process."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

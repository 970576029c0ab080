"""A run and the replicas that follow it, over a bucket or a service that crashes, as the publisher and they do.

::

    for each link
      publish the next state      by a process that tries again until it is done; meanwhile, one to three times,
        one is killed               the remote, the publisher, the folder or the model, and started again a while later
        look                        both replicas are at states that were published, and never go back
      wait                        both come to the last state by themselves: those that live on were told nothing
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import maskreg
from maskreg.errors import NotFoundError, NotOnChainError, TryAgainError, UnavailableError
from tests.e2e.attack.chains import RUN, Chains
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.people import HANG_SECONDS
from tests.e2e.attack.serving import exit_code, in_background
from tests.e2e.attack.stage import Site

_PASSING = (UnavailableError, TryAgainError, NotFoundError)


class Remote(Protocol):
    """A server that a chain goes over."""

    def kill(self) -> None:
        """End it as a crash does."""

    def restart(self) -> None:
        """Start it again, where it was and with what it held."""


class Replicas(Chains):
    """One chain over a server, and a folder and a model that follow it in processes that live on."""

    people = ("ada", "folder", "model")

    def __init__(self, folder: Path, site: Site, remote: Remote) -> None:
        """Have both follow a tag that is not there yet."""
        super().__init__(folder, site)
        self._remote, self._parent = remote, os.getpid()
        self._seconds = 2.0
        self._works: dict[str, Callable[[maskreg.Workspace], None]] = {
            "publisher": self._publish_on,
            "folder": self._folder_on,
            "model": self._model_on,
        }
        self._pids = {name: self._start(name) for name in ("folder", "model")}

    def run(self, seed: int, number: int, tally: Tally) -> None:
        """Publish one link while parts are killed, and wait for both replicas."""
        tally.faults += [f"{number}: {fault}" for fault in self._struck(seed, number, tally)]

    def _struck(self, seed: int, number: int, tally: Tally) -> Iterator[str]:
        rng = random.Random(f"{seed}/replicas/{number}")
        self._next(number)
        self._pids["publisher"] = self._start("publisher")
        begun = time.monotonic()
        for _ in range(rng.randint(1, 3)):
            time.sleep(rng.uniform(0, self._seconds))
            victim = rng.choice(["remote", *self._works])
            tally.counts[f"{victim}: killed"] += 1
            self._kill(victim, rng.uniform(0, 1))
            yield from self._torn()
        if status := exit_code(self._pids.pop("publisher")):
            yield f"the publisher ends with {status}"
        while not all(map(self._is_at_last, self._seen)):
            yield from self._torn()
            if time.monotonic() - begun > HANG_SECONDS:
                yield f"after {HANG_SECONDS} seconds replicas are at {self._seen}"
                return
            time.sleep(0.05)
        self._seconds = 0.9 * self._seconds + 0.1 * min(time.monotonic() - begun, 5)
        tally.counts["all at the last state"] += 1

    def _kill(self, victim: str, pause_s: float) -> None:
        if victim == "remote":
            self._remote.kill()
            time.sleep(pause_s)
            self._remote.restart()
            return
        os.kill(self._pids[victim], signal.SIGKILL)
        os.waitpid(self._pids[victim], 0)
        time.sleep(pause_s)
        self._pids[victim] = self._start(victim)

    def close(self) -> None:
        """End the replicas."""
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _start(self, name: str) -> int:
        return in_background(self._command(self._works[name], "ada" if name == "publisher" else name))

    def _publish_on(self, space: maskreg.Workspace) -> None:
        with maskreg.Publisher(workspace=space, **self._how) as publisher:
            while True:
                try:
                    publisher.publish(self._latest)
                    return
                except _PASSING:
                    time.sleep(0.1)

    def _folder_on(self, space: maskreg.Workspace) -> None:
        with maskreg.follow_folder(RUN, self._out, self._source, every_s=0.1, workspace=space) as follower:
            self._follow_on(follower, lambda: None)

    def _model_on(self, space: maskreg.Workspace) -> None:
        while True:
            model = self._loaded(self._source)
            try:
                with maskreg.follow(model, RUN, every_s=0.1, workspace=space) as follower:
                    self._follow_on(follower, partial(self._save, model))
            except NotOnChainError:
                continue  # the links that it needs have expired

    def _follow_on(self, follower: Any, changed: Callable[[], object]) -> None:
        while os.getppid() == self._parent:
            try:
                if follower.step() is not None:
                    changed()
            except _PASSING:
                pass
            follower.pause(5)
        os._exit(0)

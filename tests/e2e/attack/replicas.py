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
from contextlib import suppress
from functools import partial
from pathlib import Path

import maskreg
from maskreg.errors import NotFoundError, NotOnChainError, TryAgainError, UnavailableError
from tests.e2e.attack.chains import RUN, Chains
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.people import HANG_SECONDS
from tests.e2e.attack.serving import Server, exit_code, in_background
from tests.e2e.attack.stage import Site
from tests.servers import S3Server


class Replicas(Chains):
    """One chain over a server, and a folder and a model that follow it in processes that live on."""

    people = ("ada", "folder", "model")

    def __init__(self, folder: Path, site: Site, remote: S3Server | Server) -> None:
        """Have both follow a tag that is not there yet."""
        super().__init__(folder, site)
        self._remote, self._parent, self._seconds = remote, os.getpid(), 2.0
        self._works = {"ada": self._publish_on, "folder": self._folder_on, "model": self._model_on}
        self._pids = {name: self._start(name) for name in ("folder", "model")}

    def _faults(self, seed: int, number: int, tally: Tally) -> Iterator[str]:
        rng = random.Random(f"{seed}/replicas/{number}")
        self._next(number)
        begun, self._pids["ada"] = time.monotonic(), self._start("ada")
        for _ in range(rng.randint(1, 3)):
            time.sleep(rng.uniform(0, self._seconds))
            victim = rng.choice(["remote", *self.people])
            tally.counts[f"{victim}: killed"] += 1
            self._strike(victim, rng.choice((1, 9)) * rng.random())  # longer than clients try again, at times
            yield from self._torn()
        if status := exit_code(self._pids.pop("ada")):
            yield f"the publisher ends with {status}"
        while not all(map(self._is_at_last, self._seen)):
            if time.monotonic() - begun > HANG_SECONDS:
                yield f"after {HANG_SECONDS} seconds replicas are at {self._seen}"
                return
            time.sleep(0.05)
            yield from self._torn()
        self._seconds = 0.9 * self._seconds + 0.1 * min(time.monotonic() - begun, 5)
        tally.counts["all at the last state"] += 1

    def _strike(self, victim: str, pause_s: float) -> None:
        self._remote.kill() if victim == "remote" else self._kill(victim)
        time.sleep(pause_s)
        if victim == "remote":
            self._remote.restart()
        else:
            self._pids[victim] = self._start(victim)

    def _kill(self, name: str) -> None:
        os.kill(self._pids[name], signal.SIGKILL)
        os.waitpid(self._pids[name], 0)

    def close(self) -> None:
        """End the replicas."""
        for name in self._pids:
            self._kill(name)

    def _start(self, name: str) -> int:
        return in_background(self._command(self._works[name], name))

    def _publish_on(self, space: maskreg.Workspace) -> None:
        with maskreg.Publisher(workspace=space, **self._how) as publisher:
            _until_done(lambda: publisher.publish(self._latest) is not None, lambda: time.sleep(0.1))

    def _folder_on(self, space: maskreg.Workspace) -> None:
        with maskreg.follow_folder(RUN, self._out, self._source, every_s=0.1, workspace=space) as follower:
            self._follow_on(follower, lambda: None)

    def _model_on(self, space: maskreg.Workspace) -> None:
        while True:
            model = self._loaded(self._source)
            # Otherwise the links that it needs have expired.
            with suppress(NotOnChainError), maskreg.follow(model, RUN, every_s=0.1, workspace=space) as follower:
                self._follow_on(follower, partial(self._save, model))

    def _follow_on(self, follower: maskreg.Follower, changed: Callable[[], object]) -> None:
        def step() -> bool:
            if follower.step() is not None:
                changed()
            return os.getppid() != self._parent

        _until_done(step, lambda: follower.pause(5))
        os._exit(0)


def _until_done(work: Callable[[], bool], pause: Callable[[], None]) -> None:
    while True:
        with suppress(UnavailableError, TryAgainError, NotFoundError):
            if work():
                return
        pause()

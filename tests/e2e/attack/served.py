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

import random
import time
from collections.abc import Iterator

from maskreg.ref import Ref
from maskreg.registry import Registry
from maskreg.service.context import Service
from maskreg.settings import Settings
from tests.e2e.attack.damages import Tally
from tests.e2e.attack.dying import forked
from tests.e2e.attack.serving import Command, ServedAttack, exit_code, in_background
from tests.service.serving import service_in

VERIFY_EVERY = 20
"""Numbers between two looks at every byte of the server."""


class ServedKills(ServedAttack):
    """Kills of the clients, and of the server."""

    name = "served"

    def _service(self) -> Service:
        return service_in(self._folder / "served")

    def _registry(self) -> Registry:
        return Registry.local(Settings(home=self._folder / "served", config_path=self._folder / "none.toml"))

    def _checked(self, number: int) -> Ref | None:
        return None if number % VERIFY_EVERY == VERIFY_EVERY - 1 else super()._checked(number)

    def _strike(self, rng: random.Random, number: int, verb: str, command: Command, tally: Tally) -> Iterator[str]:
        kill = rng.choice([self._client_killed, self._server_killed])
        tally.counts[f"{verb}: {kill(command, self._moment(rng))}"] += 1
        return iter(())

    def _client_killed(self, command: Command, after: float) -> str:
        return "client killed" if forked(command, after=after).killed else "was done"

    def _server_killed(self, command: Command, after: float) -> str:
        pid = in_background(command)
        time.sleep(after)
        self._server.kill()
        self._server.restart()
        return "server killed" + ("" if exit_code(pid) == 0 else ", the client gave up")

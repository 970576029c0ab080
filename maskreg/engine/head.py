"""Whether the head of a cluster answers: asked by a connection to its port, which costs it next to nothing.

Ray ends a process whose cluster has been away for a minute: at once, with no chance to clean up. So the engine has to
notice earlier.
"""

from __future__ import annotations

import socket
import time

from maskreg.errors import UnavailableError

AWAY_SECONDS = 15
"""How long a head may be away in the middle of a run: a quick restart of it passes, and a minute is far."""

_FIRST_SECONDS = 10

_ANSWER_SECONDS = 5

_PAUSE_SECONDS = 1.0


def require_answer(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would try it for minutes.

    ``address``: ``HOST:PORT``, or ``ray://HOST:PORT``.
    """
    try:
        _connect(address, _FIRST_SECONDS)
    except (OSError, ValueError) as error:
        raise UnavailableError(f"{address}: no Ray cluster answers", hint="ray status tells which run") from error


class Head:
    """The head of a cluster in use."""

    def __init__(self, address: str) -> None:
        """It has just answered.

        ``address``: ``HOST:PORT``.
        """
        self._address = address
        self._asked_at = time.monotonic()

    def check(self) -> None:
        """Call :meth:`require`, when the last time was a second ago."""
        if time.monotonic() - self._asked_at >= _PAUSE_SECONDS:
            self.require()

    def require(self) -> None:
        """Return when the head answers: at once, or when it is back."""
        began_at = time.monotonic()
        while True:
            try:
                _connect(self._address, _ANSWER_SECONDS)
                break
            except OSError as error:
                if time.monotonic() - began_at >= AWAY_SECONDS:
                    raise UnavailableError(
                        f"the Ray cluster at {self._address} does not answer any more",
                        hint="see whether it runs, with ray status, and start the command again",
                    ) from error
            time.sleep(_PAUSE_SECONDS)
        self._asked_at = time.monotonic()


def _connect(address: str, seconds: float) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()

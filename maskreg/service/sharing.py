"""Sharing: every process tells the others, once a second, what it has let through."""

from __future__ import annotations

from maskreg.service.auth.buckets import Buckets
from maskreg.service.auth.throttle import RateLimits
from maskreg.service.background import Background

SHARE_S = 1.0
"""How often, in seconds."""


class Sharing(Background):
    """A thread that shares the rate limits of a process with the other processes of its service."""

    name = "sharing"
    trouble = "each process limits requests for itself until the database answers"

    def __init__(self, limits: RateLimits, buckets: Buckets, share_s: float = SHARE_S) -> None:
        """Name what is shared; nothing happens before :meth:`during`.

        Args:
            limits: of this process.
            buckets: of all processes.
            share_s: how often, in seconds.
        """
        super().__init__(share_s)
        self._limits, self._buckets = limits, buckets

    def turn(self) -> None:
        """Share once.

        Raises:
            MaskregError: the database does not answer.
        """
        self._limits.share(self._buckets)

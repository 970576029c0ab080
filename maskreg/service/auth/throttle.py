"""Limits of requests: how many an account or an address can send, and how many wrong tokens an address can try.

Each key has a bucket that holds a number of requests and fills at a steady rate. A request takes one; an empty bucket
answers 429 and says when to come back. Buckets are in memory: each process of a server limits for itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from cachetools import LRUCache

from maskreg.errors import RateLimitedError

_MOST_BUCKETS = 65_536


class Throttle:
    """Buckets by key, the latest 65,536. Safe to use from many threads.

    Args:
        per_second: how fast a bucket fills.
        burst: how many requests a full one holds.
        clock: in seconds; for tests.
    """

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = per_second, burst, clock
        self._lock = threading.Lock()
        # What each bucket held, and when.
        self._buckets: LRUCache[str, tuple[float, float]] = LRUCache(_MOST_BUCKETS)

    def take(self, key: str, count: int = 1) -> None:
        """Take from a bucket; 0 only looks whether anything is left."""
        now, needed = self._clock(), max(count, 1)
        with self._lock:
            held, at = self._buckets.get(key, (float(self._burst), now))
            held = min(self._burst, held + (now - at) * self._rate)
            self._buckets[key] = (held - count if held >= needed else held, now)
        if held < needed:
            raise RateLimitedError(int((needed - held) / self._rate) + 1)


@dataclass(frozen=True)
class RateLimits:
    """The limits of a process."""

    accounts: Throttle
    addresses: Throttle
    failures: Throttle

    @classmethod
    def of(cls, per_second: float) -> RateLimits:
        """The limits that follow from the requests a second of an account.

        An address without an account gets a tenth, and one wrong token a second after the first twenty.
        """
        return cls(
            Throttle(per_second, int(10 * per_second) or 1),
            Throttle(per_second / 10, int(per_second) or 1),
            Throttle(1.0, 20),
        )

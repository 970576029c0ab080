"""Limits of requests: how many an account or an address may send, and how many wrong tokens an address may try.

Each has a bucket that holds a number of requests and fills at a steady rate. A request takes one; who finds the bucket
empty is told when to come back (429). Buckets are those of one process: a server of four processes lets four times as
much through.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from maskreg.errors import RateLimitedError

_MOST_BUCKETS = 65_536


class Throttle:
    """Buckets by key. Safe to use from many threads.

    Args:
        per_second: how fast a bucket fills.
        burst: how many requests a full one holds.
        clock: in seconds; for tests.
    """

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = per_second, burst, clock
        self._lock = threading.Lock()
        # What each bucket held, and when; the one that was used last is at the end.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, count: int = 1) -> None:
        """Take from a bucket.

        Args:
            key: whose.
            count: how much; 0 only looks whether anything is left.

        Raises:
            RateLimitedError: there is not enough in it; says when there will be.
        """
        now = self._clock()
        with self._lock:
            held, at = self._buckets.pop(key, (float(self._burst), now))
            held = min(self._burst, held + (now - at) * self._rate)
            enough = held >= max(count, 1)
            self._buckets[key] = (held - count if enough else held, now)
            if len(self._buckets) > _MOST_BUCKETS:
                self._buckets.popitem(last=False)
        if not enough:
            raise RateLimitedError(int((max(count, 1) - held) / self._rate) + 1)


@dataclass(frozen=True)
class RateLimits:
    """The limits of a server.

    Attributes:
        accounts: requests of an account.
        addresses: requests of an address that shows no account.
        failures: wrong tokens from an address.
    """

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

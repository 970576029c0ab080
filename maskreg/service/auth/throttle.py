"""Limits of requests: how many an account or an address may send, and how many wrong tokens an address may try.

Each has a bucket that holds a number of requests and fills at a steady rate. A request takes one; who finds the bucket
empty is told when to come back (429).

Each process has buckets of its own, in memory, so that a request costs nothing. Once a second it takes what it has let
through from the bucket that all processes of all servers share in their database, and goes on with what that holds::

    process A   50 of ada  ──> shared: 100 - 50 - 30 = 20 ──> A and B go on with 20
    process B   30 of ada  ──>

So together they let through what one would, and what each lets through within a second more. Who sends little is not
written down at all.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from maskreg.errors import RateLimitedError
from maskreg.service.auth.buckets import Bucket, Buckets

_MOST_BUCKETS = 65_536
_QUIET = 0.05


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
        self._taken: dict[str, float] = {}
        self._shared_at = clock()
        self._moment = 0.0

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
            if enough and count:
                self._taken[key] = self._taken.get(key, 0.0) + count
            if len(self._buckets) > _MOST_BUCKETS:
                self._buckets.popitem(last=False)
        if not enough:
            raise RateLimitedError(int((max(count, 1) - held) / self._rate) + 1)

    def share(self, name: str, buckets: Buckets) -> None:
        """Take what was let through since the last time from the shared buckets, and go on with what they hold.

        Args:
            name: of these buckets among all.
            buckets: the shared ones.

        Raises:
            MaskregError: the database does not answer; what was let through is taken the next time.
        """
        now = self._clock()
        with self._lock:
            # What everybody may do twenty times over is not worth a row.
            least = max(_QUIET * self._rate * (now - self._shared_at), 1.0)
            loud = {key: count for key, count in self._taken.items() if count >= least}
            taken, self._taken = self._taken, {}
        try:
            self._moment, held = buckets.share(Bucket(name, self._rate, self._burst), loud, self._moment)
        except BaseException:
            with self._lock:
                for key, count in taken.items():
                    self._taken[key] = self._taken.get(key, 0.0) + count
            raise
        with self._lock:
            self._shared_at = now = self._clock()
            for key, left in held.items():
                self._buckets[key] = (left - self._taken.get(key, 0.0), now)


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

    def share(self, buckets: Buckets) -> None:
        """Share the buckets with those of other processes.

        Raises:
            MaskregError: the database does not answer.
        """
        for name in ("accounts", "addresses", "failures"):
            getattr(self, name).share(name, buckets)

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

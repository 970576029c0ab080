"""Buckets of requests."""

from __future__ import annotations

import pytest

from maskreg.errors import RateLimitedError
from maskreg.service.middleware import RateLimits, Throttle


def test_a_bucket_fills_again_and_says_when() -> None:
    now = [0.0]
    throttle = Throttle(2.0, 4, clock=lambda: now[0])
    for _ in range(4):
        throttle.take("ada")
    with pytest.raises(RateLimitedError) as refused:
        throttle.take("ada")
    assert refused.value.retry_after_s == 1
    throttle.take("bob")
    now[0] = 0.5
    throttle.take("ada", 0)
    throttle.take("ada")
    with pytest.raises(RateLimitedError):
        throttle.take("ada", 0)
    now[0] = 1e6
    for _ in range(4):
        throttle.take("ada")
    with pytest.raises(RateLimitedError):
        throttle.take("ada")


def test_what_follows_from_a_rate() -> None:
    limits = RateLimits.of(0.5)
    limits.accounts.take("a", 5)
    with pytest.raises(RateLimitedError):
        limits.accounts.take("a")
    limits.failures.take("x", 20)
    with pytest.raises(RateLimitedError):
        limits.failures.take("x", 0)

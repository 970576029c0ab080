"""Processes that share a database let through together what one would."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from maskreg.errors import RateLimitedError, UnavailableError
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.buckets import Bucket, Buckets
from maskreg.service.auth.models import BucketRow
from maskreg.service.auth.throttle import RateLimits, Throttle

SLOW = 1e-6
"""A rate at which nothing comes back while a test runs."""


def let_through(throttle: Throttle, key: str, tries: int) -> int:
    passed = 0
    for _ in range(tries):
        try:
            throttle.take(key)
            passed += 1
        except RateLimitedError:
            pass
    return passed


def test_many_processes_let_through_what_one_would(accounts: Accounts) -> None:
    processes = [Throttle(SLOW, 100) for _ in range(4)]
    passed = 0
    for _ in range(20):
        for process in processes:
            passed += let_through(process, "ada", 5)
        for process in processes:
            process.share("accounts", accounts.buckets)
    # Without sharing each lets 100 through; together they let through what comes within one turn more.
    assert 100 <= passed <= 100 + 4 * 5
    late = Throttle(SLOW, 100)
    late.share("accounts", accounts.buckets)
    assert let_through(late, "ada", 5) == 0
    assert let_through(late, "bob", 5) == 5
    assert let_through(processes[0], "ada", 5) == 0


def test_kinds_of_buckets_are_apart_and_fill_again(accounts: Accounts) -> None:
    first, second = (RateLimits(*(Throttle(SLOW, 2) for _ in range(3))) for _ in range(2))
    assert let_through(first.failures, "10.0.0.1", 3) == 2
    for limits in (first, second):
        limits.share(accounts.buckets)
    assert let_through(second.failures, "10.0.0.1", 1) == 0
    assert let_through(second.addresses, "10.0.0.1", 1) == 1
    with accounts._database.write() as connection:
        connection.exec_driver_sql("UPDATE service_buckets SET at = at - 5")
    _, held = accounts.buckets.share(Bucket("failures", 0.2, 2), {}, 0.0)
    assert 1.0 <= held["10.0.0.1"] <= 2.0


def test_who_sends_little_is_not_written_down(accounts: Accounts) -> None:
    now = [0.0]
    throttle = Throttle(100.0, 1000, clock=lambda: now[0])
    let_through(throttle, "quiet", 4)
    let_through(throttle, "loud", 50)
    now[0] = 1.0
    throttle.share("accounts", accounts.buckets)
    with accounts._database.read() as connection:
        assert list(connection.execute(select(BucketRow.key)).scalars()) == ["accounts loud"]


def test_what_could_not_be_shared_is_shared_the_next_time(accounts: Accounts) -> None:
    class Away(Buckets):
        def share(self, *args: object) -> tuple[float, dict[str, float]]:
            raise UnavailableError("the database does not answer")

    throttle = Throttle(SLOW, 10)
    assert let_through(throttle, "ada", 20) == 10
    with pytest.raises(UnavailableError):
        throttle.share("accounts", Away(accounts._database))
    throttle.share("accounts", accounts.buckets)
    other = Throttle(SLOW, 10)
    other.share("accounts", accounts.buckets)
    assert let_through(other, "ada", 1) == 0

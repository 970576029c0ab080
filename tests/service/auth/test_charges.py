"""Artifacts on their way use the quotas of the projects that are charged with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from maskreg.digest import Digest
from maskreg.service.auth.accounts import Accounts

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIRST, SECOND = Digest.of(b"1"), Digest.of(b"2")


def test_a_project_is_charged_once_with_an_artifact(accounts: Accounts) -> None:
    charges = accounts.charges
    for project, digest in (("team", FIRST), ("team", FIRST), ("team", SECOND), ("zoo", FIRST)):
        charges.add(digest, project, 1 << 40, NOW)
    assert charges.of("team") == {FIRST: 1 << 40, SECOND: 1 << 40}
    assert charges.projects(FIRST) == {"team", "zoo"}
    charges.drop(FIRST, project="team")
    assert charges.of("team") == {SECOND: 1 << 40}
    assert charges.projects(FIRST) == {"zoo"}
    for _ in range(2):
        charges.drop(FIRST)
    assert charges.of("zoo") == {}
    assert not charges.projects(FIRST)


def test_what_is_old_is_known_and_goes_alone(accounts: Accounts) -> None:
    charges = accounts.charges
    charges.add(FIRST, "team", 1, NOW - timedelta(days=8))
    charges.add(FIRST, "zoo", 1, NOW)
    charges.add(FIRST, "team", 1, NOW)  # has no effect: it began before
    charges.add(SECOND, "team", 1, NOW)
    old = NOW - timedelta(days=7)
    assert charges.before(old) == {FIRST}
    charges.drop(FIRST, before=old)
    assert not charges.before(old)
    assert charges.projects(FIRST) == {"zoo"}

"""The contract of accounts: from what a request shows to who sends it."""

from __future__ import annotations

from typing import Protocol

from maskreg.service.accounts.roles import Principal


class Accounts(Protocol):
    """Who may do what. Safe to use from many threads."""

    def authenticate(self, secret: str) -> Principal:
        """Who a bearer token belongs to.

        Args:
            secret: the token as the client sends it.

        Raises:
            UnauthenticatedError: unknown, expired or revoked; which of them is not said.
        """

    def visitor(self) -> Principal:
        """Somebody who shows nothing: may read public projects."""

    def ready(self) -> None:
        """Check that accounts can be read.

        Raises:
            UnavailableError: the database does not answer.
            ConfigError: its schema is of another version.
        """

    def close(self) -> None:
        """Close every connection."""

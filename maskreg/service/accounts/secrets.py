"""Tokens as text: made, taken apart, and compared. Only their hash is ever stored.

::

    mr_7f3a09c2d1e4b586_q1Xw...            id: 16 hex digits, in lists and logs
       `------id------' `-secret-'         secret: 256 random bits, shown once

A secret of 256 random bits cannot be guessed or looked up in a table, so one round of sha256 is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

_TOKEN = re.compile(r"mr_(?P<id>[0-9a-f]{16})_(?P<secret>[A-Za-z0-9_-]{43})")
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Secret:
    """A token in two parts.

    Attributes:
        id: names the token.
        secret: proves that somebody has it; not in the representation.
    """

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Secret:
        """A token that nobody has seen."""
        return cls(secrets.token_hex(8), secrets.token_urlsafe(_SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> Secret | None:
        """A token that somebody showed; None for a text that is none."""
        match = _TOKEN.fullmatch(text)
        return cls(match["id"], match["secret"]) if match else None

    @property
    def text(self) -> str:
        """The token as its owner keeps it."""
        return f"mr_{self.id}_{self.secret}"

    @property
    def hash(self) -> str:
        """What is stored of the secret."""
        return hashed(self.secret)

    def fits(self, stored: str) -> bool:
        """Whether a stored hash is that of the secret; takes as long for each answer."""
        return hmac.compare_digest(self.hash, stored)


def hashed(secret: str) -> str:
    """The sha256 of a random secret, as hex digits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def random_id() -> str:
    """An identifier that nothing had before."""
    return secrets.token_hex(8)


def random_secret() -> str:
    """256 random bits as text."""
    return secrets.token_urlsafe(_SECRET_BYTES)

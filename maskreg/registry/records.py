"""Numbered records in a local registry: each is created, never replaced, and the highest of a folder counts.

So processes that race never move a memory back: the slower one adds a lower record, which no reader looks at and the
next one deletes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from maskreg.errors import CannotCreateError, NotAllowedError, NotFoundError, UnavailableError
from maskreg.limits import LIMITS
from maskreg.store.base import Store
from maskreg.store.entry import numbered

RECORD = re.compile(r"([0-9]{20})\.json")
"""The name of a numbered record."""

UNWRITABLE = (CannotCreateError, NotAllowedError, UnavailableError)
"""What a registry raises that this machine cannot write to."""


class Records:
    """The records of a local registry."""

    def __init__(self, store: Store) -> None:
        """Nothing is read yet."""
        self.store = store

    def latest(self, folder: str) -> tuple[int, str, bytes] | None:
        """Number, key and bytes of the record that counts; None when there is none."""
        if not (numbers := self.numbers(folder)):
            return None
        key = numbered(folder, numbers[-1])
        try:
            return numbers[-1], key, self.store.get(key, max_bytes=LIMITS.ref_bytes)
        except NotFoundError:
            # A process that has a later one has just deleted it.
            return self.latest(folder)

    def numbers(self, folder: str) -> list[int]:
        """Numbers of the records of a folder, in order."""
        matches = (RECORD.fullmatch(info.key.removeprefix(f"{folder}/")) for info in self.store.list(f"{folder}/"))
        return sorted(int(match[1]) for match in matches if match)

    def create(self, folder: str, n: int, data: bytes) -> None:
        """Add a record; another process might have just added another one of that number."""
        self.store.create(numbered(folder, n), data)

    def drop(self, folder: str, numbers: Iterable[int]) -> None:
        """Delete records that count no more: they only take space."""
        with suppress(*UNWRITABLE):
            self.store.delete([numbered(folder, n) for n in numbers])

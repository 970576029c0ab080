"""Stale listings: looking again, and giving up.

An object that a listing leaves out, and that is there when it is read directly, makes the listing stale; nothing is
damaged::

    for turn in looks():          at once, then after 0.25, 0.5 and 0.75 s
        list; nothing missing?    return it
        missing, and not there?   damage, or something deleted it: the caller decides
    raise not_listed(url, key)    UnavailableError
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from maskreg.errors import UnavailableError

ASK = "run the same command again in a minute; if it fails again, ask who runs the store"
"""The next step where a store contradicts itself."""

_LOOKS = 4
_PAUSE_S = 0.25


def looks() -> Iterator[int]:
    """Turns at a listing, numbered from 0, with a longer pause before each."""
    for turn in range(_LOOKS):
        if turn:
            time.sleep(_PAUSE_S * turn)
        yield turn


def not_listed(url: str, key: str, consequence: str = "") -> UnavailableError:
    """The error for a store that holds an object and does not list it.

    Args:
        url: the store's.
        key: the object's.
        consequence: what was therefore done or not done, for the message.
    """
    return UnavailableError(
        f"{url} holds {key} and does not list it: its listing is stale, or a proxy answers for it"
        + (f"; {consequence}" if consequence else ""),
        hint=ASK,
    )

"""Lengths of time as people write them."""

from __future__ import annotations

import re
from datetime import timedelta

_LONGEST = timedelta(weeks=5_200)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> timedelta:
    """A length of time, such as ``7d``, ``12h``, ``30m`` or ``0s``.

    Raises:
        ValueError: it is none, or it is longer than a century.
    """
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 7d, 12h, 30m or 0s")
    length = timedelta(**{_UNITS[match[2]]: int(match[1])})
    if length > _LONGEST:
        # Dates begin with the year 1, so a longer time before now may not be one.
        raise ValueError(f"{text!r} is more than {_LONGEST.days // 7}w")
    return length

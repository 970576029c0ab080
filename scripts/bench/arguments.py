"""Arguments that are numbers."""

from __future__ import annotations

import math


def positive(text: str) -> float:
    """An argument that is a number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


def count(text: str) -> int:
    """An argument that is a whole number above 0."""
    if int(text) < 1:
        raise ValueError
    return int(text)

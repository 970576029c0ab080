"""The one form of figures and lists in text: ``2 tensors``, ``46.8 %``, ``1.06x``, ``1.2 GiB``, ``a, b and 3 more``.

One function for each kind of figure: :func:`counted` for counts with their noun, :func:`whole` for bare ones,
:func:`percent` for shares, :func:`points` for differences of shares, :func:`times` for ratios, :func:`human_bytes` for
sizes, :func:`ago` for times, :func:`three_digits` for the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

NAMED_AT_MOST = 5
"""Names that a message spells out; the rest is counted."""

_PLURALS = {"matrix": "matrices", "was": "were", "entry": "entries", "is": "are", "has": "have", "does": "do"}


def counted(number: int, thing: str, verb: str = "") -> str:
    """A number with its noun and verb in agreement: ``1 tensor``, ``1,024 matrices``, ``2 tensors are``."""
    *before, noun = thing.split(" ")
    words = [*before, *(word if number == 1 else _PLURALS.get(word, f"{word}s") for word in (noun, verb) if word)]
    return f"{number:,} {' '.join(words)}"


def listed(names: Sequence[str], at_most: int = NAMED_AT_MOST, *, separator: str = ", ") -> str:
    """The first names, and the number of the others."""
    rest = len(names) - at_most
    return separator.join(names[:at_most]) + (f" and {rest:,} more" if rest > 0 else "")


def three_digits(value: float | None) -> str:
    """A figure with three significant digits: ``1.06``, ``0.0512``, but ``5,247`` in full; ``-`` for None."""
    if not value:
        return "-" if value is None else "0"
    if value == math.inf:
        return "infinite"
    rounded = f"{value:#.3g}"
    # Four digits before the point and more are written out: 1.23e+03 is harder to read than 1,234.
    return f"{value:,.0f}" if "e+" in rounded and abs(value) < 1e15 else rounded.rstrip(".")


def percent(share: float | None) -> str:
    """A share in percent with three significant digits: ``46.8 %``; ``-`` for None."""
    return "-" if share is None else f"{three_digits(100 * share)} %"


def points(difference: float | None) -> str:
    """A difference of two shares in percentage points, with its sign: ``+2.31 points``; ``-`` for None."""
    if difference is None:
        return "-"
    sign = "+" if difference > 0 else "−" if difference < 0 else ""
    return f"{sign}{three_digits(100 * abs(difference))} points"


def interval(ends: tuple[float, float] | None) -> str:
    """A 95 % interval of a share: ``20.6 to 21.9 %``; ``-`` for None."""
    if ends is None:
        return "-"
    low, high = (percent(end) for end in ends)
    return f"{low.removesuffix(' %')} to {high}"


def times(ratio: float | None) -> str:
    """A ratio with three significant digits: ``1.06x``; ``-`` for None."""
    return three_digits(ratio) if ratio in (None, math.inf) else f"{three_digits(ratio)}x"


def whole(number: float | None) -> str:
    """A count, or an expected count, with separated thousands: ``5,247``; ``0.012`` below 1, ``-`` for None."""
    if number is not None and 0 < number < 1:
        return three_digits(number)
    return "-" if number is None else f"{round(number):,}"


def natural(label: str) -> tuple[object, ...]:
    """A sort key for labels with numbers in them: 2 before 10; the empty label comes last."""
    pieces = re.split(r"(\d+)", label)
    return (label == "", *((0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces if piece))


def ago(at: datetime, now: datetime | None = None) -> str:
    """How long ago, or how long between two times: ``12 s``, ``5 min``, ``3 h`` or ``2 d``."""
    seconds = max(0, round(((now or datetime.now(UTC)) - at) / timedelta(seconds=1)))
    unit, size = next(
        (unit, size)
        for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
        if seconds >= size or size == 1
    )
    return f"{seconds // size:,} {unit}"


def human_bytes(count: float) -> str:
    """A size as text: ``1.2 GiB``."""
    if count < 1024:
        return f"{int(count)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1023.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} PiB"

"""Numbers of things and lists of names, as messages say them."""

from __future__ import annotations

from collections.abc import Sequence

NAMED_AT_MOST = 5
"""Names that a message lists before it only counts."""

_PLURALS = {"matrix": "matrices", "is": "are", "has": "have", "does": "do"}


def counted(number: int, thing: str, verb: str = "") -> str:
    """``1 tensor``, ``2 tensors``, ``1,024 matrices``, ``1 tensor is``.

    Args:
        number: how many there are.
        thing: what they are, in the singular.
        verb: what follows, in the singular.
    """
    words = [word if number == 1 else _PLURALS.get(word, f"{word}s") for word in (thing, verb) if word]
    return f"{number:,} {' '.join(words)}"


def listed(names: Sequence[str], at_most: int = NAMED_AT_MOST, *, mark: str = ", ") -> str:
    """The first names, and how many more there are.

    Args:
        names: all of them.
        at_most: how many to spell out.
        mark: what stands between them.
    """
    rest = len(names) - at_most
    return mark.join(names[:at_most]) + (f" and {rest:,} more" if rest > 0 else "")

"""Names that a reader would take for another: the same but for case, width, or letters of another script.

::

    ada, Ada, ａｄａ, аda (its first letter is Cyrillic)      look alike
    josé, jose                                                do not: whoever reads sees the accent

Who acts as a look-alike of somebody could sign history in that person's name.
"""

from __future__ import annotations

import unicodedata

_LETTERS = {
    "абвгеёзіјкмнорстухѕԁһԛԝӏ": "a6brеёзijkmhopctyxsdhqwl",
    "αβεζηικμνορτυχ": "abezhikmvoptyx",
    "ıɑɡℓ‐‑‒–": "iagl----",
}
"""Letters as they look in lower or upper case, and the Latin ones that they look like."""

_LATIN = {ord(letter): like for row, latin in _LETTERS.items() for letter, like in zip(row, latin, strict=True)}


def look(name: str) -> str:
    """What a name looks like: equal for names that look alike."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(folded.translate(_LATIN).split())

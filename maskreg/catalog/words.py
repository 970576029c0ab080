"""What a search text is compared with: the beginnings of the words of a name, its project, family and description.

A text is split at spaces, and what is left may begin to match wherever a letter or digit follows none::

    QWEN3-8B-run-07     qwen3-8b-run-07    8b-run-07    run-07    07
    "8b-r" matches, "3-8b" does not

So one search word is the beginning of one indexed word, which an index finds without looking at anything else. Where
a script writes no spaces between words, each of its characters begins one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

MAX_WORD = 64
"""Characters by which words are compared."""

MAX_WORDS = 1000
"""Words of a name that are indexed, the first ones; PostgreSQL holds 1 MiB of them."""

SEPARATOR = "\n"
"""Stands before each word of the column ``words``; no word holds one."""

# Hiragana, katakana and Han have no case and no spaces. An underscore is no letter.
_BEGINNING = re.compile(r"^.|(?<![^\W_])[^\W_]|[\u3040-\u30ff\u3400-\u9fff]")
_DIGEST_PREFIX = re.compile(r"(?:sha256:)?([0-9a-f]{4,64})")


def clean(text: str) -> str:
    """``text`` with what one of the databases cannot store replaced.

    Cards come from outside: PostgreSQL refuses NUL, and both refuse a lone surrogate.
    """
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def indexed_words(*texts: str) -> str:
    """The column ``words`` of these texts: every word in which a search can begin to match, case-folded, each once.

    Case is folded here, since the databases' own ``lower()`` differ outside ASCII.
    """
    words = dict.fromkeys(word for text in texts for word in _words_in(text))
    return "".join(f"{SEPARATOR}{word}" for word in islice(words, MAX_WORDS))


def words_of(text: str) -> list[str]:
    """The words of a text, between its spaces, in lower case."""
    return clean(text).casefold().split()


def digest_prefix(word: str) -> str:
    """The beginning of digests that a word of a search can mean; empty when it means none."""
    match = _DIGEST_PREFIX.fullmatch(word)
    return f"sha256:{match[1]}" if match else ""


def _words_in(text: str) -> Iterator[str]:
    for part in words_of(text):
        for beginning in _BEGINNING.finditer(part):
            yield part[beginning.start() : beginning.start() + MAX_WORD]

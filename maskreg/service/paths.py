"""Paths and databases of the server, which answers and stored errors never show."""

from __future__ import annotations

import re

_ABSOLUTE = re.compile(r"(?:\bfile://|(?<![\w.:/~-]))/(?:[^\s/'\":,;()]+/)*(?P<last>[^\s/'\":,;()]+)/?")
# An absolute path, as a file:// URL or bare: not the path of a reference (team/name) or of another URL (https://...).

_DATABASE = re.compile(r"\bpostgresql(?:\+\w+)?://[^\s'\",;()]*[^\s'\",;():.]")


def without_paths(text: str) -> str:
    """A text with every absolute path cut down to its last name, and every URL of a database to what it is.

    ::

        /srv/models/qwen3-8b: tensor w: leaf 3 differs       qwen3-8b: tensor w: leaf 3 differs
        there is no team/opd in local (file:///srv/home)     there is no team/opd in local (home)
        postgresql+psycopg://ada@db/masks: a lock is held    the database: a lock is held
    """
    return _ABSOLUTE.sub(lambda match: match["last"], _DATABASE.sub("the database", text))

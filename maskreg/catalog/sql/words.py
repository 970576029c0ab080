"""The condition that a name has a word: by an index of words on PostgreSQL, by looking at each name on SQLite.

A word of a search is the beginning of words. PostgreSQL's index goes through the names of several whole words side by
side and skips what only one of them has, but collects the names of each beginning one by one: of two words that
125,000 names have each, 10 ms and 91 ms. So a table beside it holds every word once, and a search for several
first asks that which words begin with its own::

    words                   math-03   math-03b   math-04   opd
    search "math-03 opd"    ('math-03' | 'math-03b') & 'opd'
    search "m opd"          'm':* & 'opd'                       too many begin so
    search "math-03"        'math-03':*                         nothing beside it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Boolean, Connection, Text, bindparam, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from maskreg.catalog.tables.words import MAX_WORD, SEPARATOR, beginning, words_of

MAX_WHOLE = 100
"""Of more words than this that begin with one of a search, the index is asked for the beginning."""

# As the migration has it that makes the index: PostgreSQL uses an index for nothing but its own expression.
_LEXEMES = "array_to_tsvector(string_to_array(substr(refs.words, 2), E'\\n'))"
_QUOTED = str.maketrans({"'": "''", "\\": "\\\\"})

# No word is longer than MAX_WORD, and no character is behind this one: all that begin with a word are before the two.
_LAST = "\U0010ffff" * MAX_WORD

_BEGINNING = text("""
    SELECT asked.number, whole.word
    FROM unnest(CAST(:words AS text[])) WITH ORDINALITY AS asked (word, number)
    CROSS JOIN LATERAL (
        SELECT words.word FROM words
        WHERE words.word >= asked.word AND words.word <= asked.word || :last ORDER BY words.word LIMIT :limit
    ) AS whole
""")
# In one order, so that of two writers with the same new words neither waits for the other.
_ADD = text("INSERT INTO words SELECT unnest(CAST(:words AS text[])) AS word ORDER BY word ON CONFLICT DO NOTHING")


class HasWord(FunctionElement[bool]):
    """That a row of ``refs`` has a word which begins with a word of a search."""

    inherit_cache = True
    type = Boolean()

    def __init__(self, number: int) -> None:
        """Refer to the values that :func:`word_values` gives for the word of this number."""
        super().__init__(*(bindparam(name.format(number), type_=Text()) for name in ("beginning_{}", "lexemes_{}")))


def word_values(connection: Connection, words: Sequence[str], project: str) -> dict[str, str]:
    """Parameters for :class:`HasWord` of each word of a search, of which each database uses its own.

    Args:
        connection: that will run the search.
        words: of the search.
        project: of all names that the search looks for; empty where it does not say.
    """
    values = {f"beginning_{number}": beginning(word) for number, word in enumerate(words)}
    if words and connection.dialect.name == "postgresql":
        # The words of a project are words of its names: the index goes through the names of both side by side.
        within = [_lexeme(word) for word in words_of(project)]
        # The names of one beginning alone are beside no others.
        lexemes = _whole(connection, words) if len(words) + len(within) > 1 else [_beginning(words[0])]
        for number, either in enumerate(lexemes):
            values[f"lexemes_{number}"] = " & ".join([f"({either})", *within])
    return values


def put_words(connection: Connection, columns: Iterable[str]) -> None:
    """Add the words of these columns ``words`` to the table of PostgreSQL, after their rows were written.

    A rebuild locks the names first as well, so that neither waits for the other.
    """
    if connection.dialect.name == "postgresql":
        words = {word for column in columns for word in column.split(SEPARATOR)[1:]}
        connection.execute(_ADD, {"words": list(words)})


def drop_words(connection: Connection) -> None:
    """Empty the table, which keeps the words of names that are gone."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("DELETE FROM words"))


def _whole(connection: Connection, words: Sequence[str]) -> list[str]:
    values = {"words": [word[:MAX_WORD] for word in words], "last": _LAST, "limit": MAX_WHOLE + 1}
    whole: list[list[str]] = [[] for _ in words]
    for number, word in connection.execute(_BEGINNING, values):
        whole[number - 1].append(_lexeme(word))
    # A word with which none begins finds nothing either way.
    return [
        " | ".join(lexemes) if 0 < len(lexemes) <= MAX_WHOLE else _beginning(word)
        for word, lexemes in zip(words, whole, strict=True)
    ]


def _beginning(word: str) -> str:
    return f"{_lexeme(word)}:*"


def _lexeme(word: str) -> str:
    return f"'{word[:MAX_WORD].translate(_QUOTED)}'"


@compiles(HasWord, "sqlite")
def _in_text(element: HasWord, compiler: SQLCompiler, **options: Any) -> str:
    column, _ = element.clauses
    return f"instr(refs.words, {compiler.process(column, **options)}) > 0"


@compiles(HasWord, "postgresql")
def _in_lexemes(element: HasWord, compiler: SQLCompiler, **options: Any) -> str:
    column, lexemes = (compiler.process(value, **options) for value in element.clauses)
    # Where rows are read in another order, to look into the text takes a tenth of making lexemes of it. PostgreSQL
    # takes "<> 0" for true of nearly all rows, so that its estimate of how many match is that of the lexemes.
    return f"(strpos(refs.words, {column}) <> 0 AND {_LEXEMES} @@ CAST({lexemes} AS tsquery))"

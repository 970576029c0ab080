"""The condition that a name has a word: by an index of words on PostgreSQL, by looking at each name on SQLite."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from maskreg.catalog.tables.words import MAX_WORD, beginning

# As the migration has it that makes the index: PostgreSQL uses an index for nothing but its own expression.
_LEXEMES = "array_to_tsvector(string_to_array(substr(refs.words, 2), E'\\n'))"
_QUOTED = str.maketrans({"'": "''", "\\": "\\\\"})


class HasWord(FunctionElement[bool]):
    """That a row of ``refs`` has a word which begins with a word of a search."""

    inherit_cache = True
    type = Boolean()

    def __init__(self, number: int) -> None:
        """Refer to the values that :func:`values_of_word` gives for the same number."""
        super().__init__(*(bindparam(name.format(number), type_=Text()) for name in ("beginning_{}", "lexeme_{}")))


def values_of_word(number: int, word: str) -> dict[str, str]:
    """Parameters for :class:`HasWord`, of which each database uses its own."""
    lexeme = word[:MAX_WORD].translate(_QUOTED)
    return {f"beginning_{number}": beginning(word), f"lexeme_{number}": f"'{lexeme}':*"}


@compiles(HasWord, "sqlite")
def _in_text(element: HasWord, compiler: SQLCompiler, **options: Any) -> str:
    text, _ = element.clauses
    return f"instr(refs.words, {compiler.process(text, **options)}) > 0"


@compiles(HasWord, "postgresql")
def _in_lexemes(element: HasWord, compiler: SQLCompiler, **options: Any) -> str:
    text, lexeme = (compiler.process(value, **options) for value in element.clauses)
    # Where rows are read in another order, to look into the text takes a tenth of making lexemes of it. PostgreSQL
    # takes "<> 0" for true of nearly all rows, so that its estimate of how many match is that of the lexemes.
    return f"(strpos(refs.words, {text}) <> 0 AND {_LEXEMES} @@ CAST({lexeme} AS tsquery))"

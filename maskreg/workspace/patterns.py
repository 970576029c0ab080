"""Patterns of references: which of the words that were searched for compare whole references, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.ref import Ref, is_pattern

_ANY = "*"
_MARKS = frozenset("/:@*?[")
_DIGITS = re.compile(r"sha256:([0-9a-f]{1,64})")


@dataclass(frozen=True)
class Pattern:
    """What a reference has to be; ``*``, ``?`` and ``[...]`` as in file names.

    Attributes:
        project, name, tag: patterns of the parts.
        digits: what the digest has to begin with.
    """

    project: str = _ANY
    name: str = _ANY
    tag: str = _ANY
    digits: str = ""

    @classmethod
    def parse(cls, word: str) -> Pattern | None:
        """The pattern that a word is; None for a word that is searched for in texts.

        ::

            team/        every name of the project team
            team/opd     every tag of team/opd
            opd:v1       the tag v1 of opd, in any project
            't/*'        every name of t
            sha256:4be0  each artifact with such a digest

        Raises:
            UsageError: what follows ``@`` is not the beginning of a digest.
        """
        if not _MARKS & set(word):
            return None
        label, at, digest = ("", "@", word) if word.startswith("sha256:") else word.partition("@")
        match = _DIGITS.fullmatch(digest) if at else None
        if at and match is None:
            raise UsageError(f"{digest!r} is not the beginning of a digest, such as sha256:4be0", names="")
        project, _, rest = label.rpartition("/")
        name, _, tag = rest.partition(":")
        return cls(project or _ANY, name or _ANY, tag or _ANY, match[1] if match else "")

    def matches(self, ref: Ref, digest: Digest | None) -> bool:
        """Whether a tag, which points to the artifact ``digest``, is meant; an unknown digest matches no digits."""
        parts = ((ref.project, self.project), (ref.name, self.name), (ref.tag, self.tag))
        has_digits = not self.digits or (digest is not None and digest.hex.startswith(self.digits))
        return has_digits and all(fnmatchcase(part, pattern) for part, pattern in parts)

    @property
    def fixed(self) -> dict[str, str]:
        """The parts that are no patterns but have one value, for a query."""
        parts = {"project": self.project, "tag": self.tag}
        return {key: part for key, part in parts.items() if not is_pattern(part)}


def narrowed(query: Query, patterns: Sequence[Pattern]) -> Query:
    """A query that gives all that matches it and the patterns, and little else."""
    # What a single pattern says for certain need not be read and thrown away.
    if len(patterns) != 1 or "project" in query.filters:
        return query
    return replace(query, filters={**query.filters, **patterns[0].fixed})


def split(text: str) -> tuple[list[Pattern], str]:
    """The patterns among the words of a search text, and the other words.

    Raises:
        UsageError: a word has something behind ``@`` that is not the beginning of a digest.
    """
    words = text.split()
    patterns = [Pattern.parse(word) for word in words]
    rest = [word for word, pattern in zip(words, patterns, strict=True) if pattern is None]
    return [pattern for pattern in patterns if pattern is not None], " ".join(rest)

"""The one glossary: what every word and every figure of maskreg means. Light to import.

``glossary.toml`` holds the entries; ``docs/glossary.md`` shows them.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from maskreg.errors import UsageError
from maskreg.words import percent, three_digits, times

OWN = "maskreg"
"""Source of what maskreg defines itself."""


@dataclass(frozen=True)
class Entry:
    """One word and its only meaning; ``glossary.toml`` says what the fields mean."""

    name: str
    definition: str
    source: str = OWN
    aliases: tuple[str, ...] = ()
    family: bool = False
    form: Literal["share", "ratio", ""] = ""

    @property
    def brief(self) -> str:
        """The first sentence."""
        return self.definition.partition(". ")[0].removesuffix(".") + "."


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

SOURCES: Mapping[str, str] = _TABLES.pop("sources")
"""Papers that several entries cite."""


def _entries(group: str) -> dict[str, Entry]:
    entries = {}
    for name, fields in _TABLES[group].items():
        source, aliases = fields.pop("source", OWN).format(**SOURCES), tuple(fields.pop("aliases", ()))
        entries[name] = Entry(name, source=source, aliases=aliases, **fields)
    return entries


GENERAL = _entries("words")
"""Every word that is no figure, by name."""

MASKS, OVERLAP, GEOMETRY = _entries("masks"), _entries("overlap"), _entries("geometry")
"""Figures of a mask, of the overlap of two, and of an update's geometry, by name."""

FIGURES = {**MASKS, **_entries("artifacts"), **OVERLAP, **_entries("updates"), **GEOMETRY}
"""Every figure by name, in the order of tables."""

ENTRIES = {**GENERAL, **FIGURES}
"""Every word by name."""

COLUMNS = {
    "ratio-tensor": ("ratio", "random-per-tensor"),
    "ratio-exponent": ("ratio", "exponent-matched"),
    "ratio-rounding": ("ratio", "rounding-null"),
    "headroom-tensor": ("headroom", "random-per-tensor"),
    "headroom-exponent": ("headroom", "exponent-matched"),
    "odds-ratio-tensor": ("mantel-haenszel", "groups"),
    "odds-ratio-exponent": ("mantel-haenszel", "groups"),
}
"""Table columns with a second title line: the figure and its null."""


def explain(name: str, command: str = "compare") -> tuple[Entry, ...]:
    """Look up a figure or word by its name, JSON key or title in a table.

    Args:
        name: case, blanks, underscores and hyphens do not matter.
        command: the command that an error's next step shows.

    Returns:
        One entry; two for a column of a table that has two titles, such as ``headroom exponent``.
    """
    key = _key(name)
    if key in COLUMNS:
        return tuple(FIGURES[part] for part in COLUMNS[key])
    entry = _EXACT.get(key) or _longest(key)
    if entry is None:
        near = difflib.get_close_matches(key, _EXACT, n=1)
        if near:
            raise UsageError(f"{name!r} is not in the glossary", command=command, entry=_EXACT[near[0]].name)
        raise UsageError(f"{name!r} is not in the glossary", hint=f"one of: {', '.join(ENTRIES)}")
    return (entry,)


def written(figure: str, value: float | None) -> str:
    """A figure, named as for :func:`explain`, in its one form; ``-`` for None."""
    form = "share" if _key(figure) == "step-energy" else explain(figure)[0].form
    return percent(value) if form == "share" else times(value) if form == "ratio" else three_digits(value)


def position(figure: str) -> int:
    """Where tables show a figure: the place of its entry among :data:`FIGURES`."""
    return list(FIGURES).index(explain(figure)[0].name)


def _longest(key: str) -> Entry | None:
    fitting = [name for name in _FAMILIES if key.startswith((f"{name}-", f"{name}@"))]
    return _FAMILIES[max(fitting, key=len)] if fitting else None


def _key(name: str) -> str:
    return re.sub(r"\.?[\s_-]+", "-", name.strip().lower()).strip("-.:")


def _keys(entries: Iterable[Entry]) -> Mapping[str, Entry]:
    entries = list(entries)
    aliases = {_key(alias): entry for entry in entries for alias in entry.aliases}
    return {**aliases, **{_key(entry.name): entry for entry in entries}}


# Figures come first: analyses store a gap as "step", which is otherwise an optimizer step.
_EXACT = {**_keys(GENERAL.values()), **_keys(FIGURES.values())}
_FAMILIES = _keys(entry for entry in FIGURES.values() if entry.family)

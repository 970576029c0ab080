"""The one glossary: what every figure and every word of maskreg means. Light to import."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from maskreg.analysis.glossary.figures import (
    ARTIFACTS,
    COLUMNS,
    GEOMETRY,
    MASKS,
    MOMENTS,
    OVERLAP,
    RATIOS,
    SHARES,
    UPDATES,
)
from maskreg.errors import UsageError
from maskreg.glossary import GENERAL, Entry, by_name
from maskreg.words import percent, three_digits, times

FIGURES = by_name((*MASKS, *ARTIFACTS, *OVERLAP, *UPDATES, *MOMENTS, *GEOMETRY))
"""Every figure by name, in the order of tables."""

_SHARES = SHARES | {
    "density",
    "param-share",
    "energy-share",
    "orthogonal",
    "v_zero",
    "ffn-energy",
    "ffn-density",
    "ffn-share",
    "coverage",
    "headroom",
    "lift_share",
}
_RATIOS = RATIOS | {
    "ffn-lift",
    "energy-lift",
    "ffn-energy-lift",
    "lift",
    "lift_max",
    "ratio",
    "rlvr-overlap",
    "seed-overlap",
    "odds_ratio",
}

ENTRIES = {**GENERAL, **FIGURES}
"""Every word by name."""


def explain(name: str, command: str = "compare") -> tuple[Entry, ...]:
    """Look up a figure or word by its name, JSON key or title in a table.

    Args:
        name: case, blanks, underscores and hyphens do not matter.
        command: the command that the hint shows.

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
    """A figure in its one form: a share in percent, a ratio with an x, anything else with three digits.

    Args:
        figure: its name or JSON key, such as ``energy_top_16``.
        value: the figure; ``-`` for None.
    """
    name = explain(figure)[0].name
    if name in _SHARES or _key(figure) == "step-energy":
        return percent(value)
    return times(value) if name in _RATIOS else three_digits(value)


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

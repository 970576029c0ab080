"""Text that fits the terminal: rows that wrap between words, paragraphs, and long lists folded to what matters."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable, Mapping
from typing import TypeVar

from maskreg.ref import printable

ItemT = TypeVar("ItemT")

UNLIMITED = 10_000
"""Columns where stdout is not a terminal: programs get unbroken lines."""

READABLE = 100
"""Most columns of a paragraph."""

FOLDED_FROM = 17
"""Lists of this many lines or more are folded."""

GROUPS = ("role", "layer", "module", "tensor")
"""What figures can be grouped by: those of :data:`maskreg.checkpoint.roles.GROUPS`, known without importing them."""

_JOINED = "\N{NO-BREAK SPACE}"
_UNIT = re.compile(r"(?<=\d) (?=%|[KMGTP]?i?B\b)")

_ENDS = 2  # lines that stay at either end
_EXTREMES = 3  # lines that stay with the lowest figures, and with the highest


def width(otherwise: int = UNLIMITED) -> int:
    """Columns of the terminal; the variable ``COLUMNS`` wins.

    Args:
        otherwise: columns where stdout is not a terminal.
    """
    return shutil.get_terminal_size((otherwise, 24)).columns


def paragraph(text: str, *, indent: str = "") -> list[str]:
    """A text as lines that break only between words; all but the first are indented."""
    return _wrapped(text, min(width(), READABLE), indent)


def row(label: str, text: str, column: int) -> list[str]:
    """A label and its text; further lines begin under the text.

    Args:
        label: on the left.
        text: on the right.
        column: where the text begins, counted from 0.
    """
    lines = _wrapped(text, max(width() - column, 1)) or [""]
    return [f"{label if not number else '':<{column}}{line}" for number, line in enumerate(lines)]


def _wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    # A number stays with its unit: "46.8 %" and "1.5 MiB" count as one word.
    joined = _UNIT.sub(_JOINED, printable(text))
    lines = textwrap.wrap(joined, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_JOINED, " ") for line in lines]


def folded(
    groups: Mapping[str, ItemT],
    score: Callable[[ItemT], float | None],
    *,
    things: str,
    by: str,
    whole: bool,
    to_see_all: str = "--verbose",
) -> tuple[dict[str, ItemT], list[str]]:
    """A long list cut down to its ends and its extremes, and a line that says what was left out and how to see it.

    Nothing is left out where stdout is not a terminal: pipes and files get every line, unbroken.

    Args:
        groups: what is listed, in order.
        score: the figure whose extremes are kept; None where it is undefined.
        things: the noun for the lines, in the plural.
        by: the name of that figure.
        whole: keep every line.
        to_see_all: option or command that shows everything.

    Returns:
        The lines that stay, in order; and the line about the others, in a list that is empty if there are none.
    """
    labels = list(groups)
    if whole or width() >= UNLIMITED or len(labels) < FOLDED_FROM:
        return dict(groups), []
    scores = {label: value for label in labels if (value := score(groups[label])) is not None}
    ranked = sorted(scores, key=scores.__getitem__)
    kept = {*labels[:_ENDS], *labels[-_ENDS:], *ranked[:_EXTREMES], *ranked[-_EXTREMES:]}
    line = (
        f"folded: {len(labels) - len(kept):,} of {len(labels):,} {things}. Shown are the first {_ENDS} and the last "
        f"{_ENDS}, and the {_EXTREMES} lowest and highest by {by}. All: {to_see_all}"
    )
    return {label: groups[label] for label in labels if label in kept}, paragraph(line, indent="  ")

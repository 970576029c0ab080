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
"""Columns of what is no terminal: a line of a table is not broken where a program reads it."""

READABLE = 100
"""Columns of a paragraph at most."""

FOLDED_FROM = 17
"""Lists of at least so many lines are folded."""

GROUPS = ("role", "layer", "module", "tensor")
"""What figures can be grouped by."""

_JOINED = "\N{NO-BREAK SPACE}"
_UNIT = re.compile(r"(?<=\d) (?=%|[KMGTP]?i?B\b)")

_ENDS = 2  # lines kept at either end of the model
_EXTREMES = 3  # lines kept of the lowest figures, and of the highest


def width(otherwise: int = UNLIMITED) -> int:
    """Columns of the terminal, or as many as ``COLUMNS`` says.

    Args:
        otherwise: the answer where stdout is no terminal.
    """
    return shutil.get_terminal_size((otherwise, 24)).columns


def paragraph(text: str, *, indent: str = "") -> list[str]:
    """A text in lines that break between words only, the second and later ones indented."""
    return _wrapped(text, min(width(), READABLE), indent)


def row(label: str, text: str, column: int) -> list[str]:
    """A label and what it stands for; further lines begin under the text.

    Args:
        label: what stands at the left.
        text: what stands at the right.
        column: where the text begins.
    """
    lines = _wrapped(text, max(width() - column, 1)) or [""]
    return [f"{label if not number else '':<{column}}{line}" for number, line in enumerate(lines)]


def _wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    # A number is not parted from its unit: "46.8 %" and "1.5 MiB" are one word.
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
    how: str = "--verbose",
) -> tuple[dict[str, ItemT], list[str]]:
    """A long list as its ends and its extremes, with a line that says what was left out and how to see it.

    Nothing is left out where stdout is no terminal: what a pipe or a file gets is neither broken nor folded.

    Args:
        groups: what is listed, in order.
        score: the figure whose extremes are kept; None where it is undefined.
        things: what is listed, in the plural.
        by: the name of that figure.
        whole: keep everything.
        how: what to type to see all.

    Returns:
        What is kept, in order, and the line; none if nothing was left out.
    """
    labels = list(groups)
    if whole or width() >= UNLIMITED or len(labels) < FOLDED_FROM:
        return dict(groups), []
    scores = {label: value for label in labels if (value := score(groups[label])) is not None}
    ranked = sorted(scores, key=scores.__getitem__)
    kept = {*labels[:_ENDS], *labels[-_ENDS:], *ranked[:_EXTREMES], *ranked[-_EXTREMES:]}
    line = (
        f"folded: {len(labels) - len(kept):,} of {len(labels):,} {things}. Shown are the first {_ENDS} and the last "
        f"{_ENDS}, and the {_EXTREMES} lowest and highest by {by}. All: {how}"
    )
    return {label: groups[label] for label in labels if label in kept}, paragraph(line, indent="  ")

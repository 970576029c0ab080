"""Tables as aligned lines of text, cut into blocks of columns where the terminal is too narrow."""

from __future__ import annotations

import re
import shutil
import textwrap
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from maskreg.ref import printable
from maskreg.words import natural

ItemT = TypeVar("ItemT")

Row = tuple[str, ...]

Column = tuple[Callable[[Any], str], Callable[[Any], Any]]
"""How a figure is written, and which figure of an item it is."""

_GAP = 2


def table(
    rows: Iterable[Row], *, right: int | Collection[int] = 1, first: int = 0, labels: int = 1, room: int | None = None
) -> list[str]:
    """Rows as aligned lines. Control characters are escaped before widths are measured.

    Args:
        rows: cells; titles are a row like others.
        right: the first of the columns that are aligned on the right, or all of them.
        first: width of the first column at least, with the gap behind it.
        labels: columns that name a row.
        room: width of a line; the terminal's by default.

    A table that is wider than the terminal is cut into blocks of columns, each of which repeats the labels of the
    rows, in the first column. If these take more than half of the terminal, they get lines of their own::

        tensor                  density        tensor                  lift
        lm_head.weight           25.3 %        lm_head.weight         1.02x
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(columns_of, column)) for column in zip(*cells, strict=True)]
    widths[0] = max(widths[0], first - _GAP)
    right = range(right, len(widths)) if isinstance(right, int) else right
    room = width() if room is None else room
    if sum(widths) + _GAP * (len(widths) - 1) <= room:
        return [_line(row, widths, range(len(widths)), right) for row in cells]
    label = sum(widths[:labels]) + _GAP * (labels - 1)
    stacked = label > room // 2
    blocks = list(_blocks(widths, labels, room, _GAP if stacked else label + _GAP))
    lines: list[str] = []
    for number, columns in enumerate(blocks):
        lines += [""] if number else []
        for row in cells:
            if not stacked:
                line = _line(row, widths, [*range(labels), *columns], right)
                # A second line of titles can have nothing over these columns.
                lines += [line] if line else []
                continue
            above = (" " * _GAP).join(cell for cell in row[:labels] if cell)
            lines += [above] if above else []
            lines.append((" " * _GAP + _line(row, widths, columns, right)).rstrip())
    return lines


def columns_of(text: str) -> int:
    """Columns that a text takes: two for each Chinese, Japanese or Korean character, none for an accent of its own."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "FW")
        for character in text
    )


def _line(row: Sequence[str], widths: Sequence[int], columns: Iterable[int], right: Collection[int]) -> str:
    cells = []
    for column in columns:
        space = " " * (widths[column] - columns_of(row[column]))
        cells.append(space + row[column] if column in right else row[column] + space)
    return (" " * _GAP).join(cells).rstrip()


def _blocks(widths: Sequence[int], labels: int, room: int, taken: int) -> Iterator[list[int]]:
    """All columns but the labels, in blocks: as many columns as fit, and at least one."""
    block: list[int] = []
    used = taken
    for column in range(labels, len(widths)):
        if block and used + widths[column] > room:
            yield block
            block, used = [], taken
        block.append(column)
        used += widths[column] + _GAP
    yield block


UNLIMITED = 10_000
"""Columns where stdout is not a terminal: programs get unbroken lines."""

READABLE = 100
"""Most columns of a paragraph."""

FOLDED_FROM = 17
"""Lists of this many lines or more are folded."""

GROUPS = ("role", "layer", "module", "tensor")
"""Groupings of figures: :data:`maskreg.checkpoint.roles.GROUPS`, known without importing them."""

_JOINED = "\N{NO-BREAK SPACE}"
_UNIT = re.compile(r"(?<=\d) (?=%|[KMGTP]?i?B\b)")

_ENDS = 2  # lines that stay at either end
_EXTREMES = 3  # lines that stay with the lowest figures, and with the highest


def width(otherwise: int = UNLIMITED) -> int:
    """Columns of the terminal; the variable ``COLUMNS`` wins."""
    return shutil.get_terminal_size((otherwise, 24)).columns


def paragraph(text: str, *, indent: str = "") -> list[str]:
    """A text as lines that break only between words; all but the first are indented."""
    return _wrapped(text, min(width(), READABLE), indent)


def fields(pairs: Iterable[tuple[str, str]], column: int) -> list[str]:
    """Labels and their texts, which begin at a column on every line."""
    wrapped = ((label, _wrapped(text, max(width() - column, 1)) or [""]) for label, text in pairs)
    return [f"{label if not n else '':<{column}}{line}" for label, lines in wrapped for n, line in enumerate(lines)]


def noted(notes: Iterable[str], indent: str = "") -> list[str]:
    """A paragraph for each note."""
    return [line for note in notes for line in paragraph(f"note: {note}", indent=indent)]


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
    see_all: str = "--verbose",
) -> tuple[dict[str, ItemT], list[str]]:
    """A long list cut down to its ends and its extremes, and a line that says what was left out and how to see it.

    Nothing is left out where stdout is not a terminal: pipes and files get every line, unbroken.

    Returns:
        The lines that stay, in order; and the line about the others, in a list that is empty if there are none.
    """
    labels = list(groups)
    if width() >= UNLIMITED or len(labels) < FOLDED_FROM:
        return dict(groups), []
    scores = {label: value for label in labels if (value := score(groups[label])) is not None}
    ranked = sorted(scores, key=scores.__getitem__)
    kept = {*labels[:_ENDS], *labels[-_ENDS:], *ranked[:_EXTREMES], *ranked[-_EXTREMES:]}
    line = (
        f"folded: {len(labels) - len(kept):,} of {len(labels):,} {things}. Shown are the first {_ENDS} and the last "
        f"{_ENDS}, and the {_EXTREMES} lowest and highest by {by}. All: {see_all}"
    )
    return {label: groups[label] for label in labels if label in kept}, paragraph(line, indent="  ")


def page(*blocks: Iterable[str]) -> str:
    """Blocks of lines, with a blank line between them; blocks without lines are left out."""
    filled = [block for block in map(list, blocks) if block]
    return "\n\n".join("\n".join(map(printable, block)) for block in filled)


def listing(
    title: str,
    items: Mapping[str, Any],
    columns: Mapping[str, Column],
    *,
    fold: tuple[str, str] | None = None,
    whole: bool = False,
    see_all: str = "--verbose",
    words: int = 1,
    first: int = 0,
) -> list[str]:
    """One line for each item, with its figures.

    Args:
        title: over the names of the items.
        items: by name.
        columns: by title; a second line of a title follows a line break.
        fold: what the items are, and the column whose extremes stay when a long list is folded (:func:`folded`).
        whole: fold nothing.
        see_all: how to see a list unfolded.
        words: columns on the left that hold words, with the names of the items.
        first: width of the first column at least.
    """
    left_out: list[str] = []
    if fold is not None and not whole:
        things, by = fold
        value = next(get for column, (_, get) in columns.items() if column.partition("\n")[0] == by)
        items, left_out = folded(items, value, things=things, by=by, see_all=see_all)
    titles = [text.partition("\n") for text in (title, *columns)]
    rows = [tuple(above for above, _, _ in titles), tuple(below for _, _, below in titles)]
    rows = rows if any(rows[1]) else rows[:1]
    for name, item in items.items():
        rows.append((name or "-", *(write(get(item)) for write, get in columns.values())))
    return [*table(rows, right=words, first=first), *left_out]


def ordered(groups: Mapping[str, ItemT]) -> dict[str, ItemT]:
    """Groups in the order of their names: layer 2 before 10, tensors outside every layer last."""
    return {label: groups[label] for label in sorted(groups, key=natural)}

"""Tables as aligned lines of text, cut into blocks of columns where the terminal is too narrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from maskreg.ref import printable

from .layout import width

Row = tuple[str, ...]

_GAP = 2


def table(rows: Iterable[Row], *, right: int = 1, first: int = 0, labels: int = 1) -> list[str]:
    """Rows as aligned lines. Control characters are escaped before widths are measured.

    A table that is wider than the terminal is cut into blocks of columns, each of which repeats the labels of the
    rows, in the first column. If these take more than half of the terminal, they get lines of their own::

        tensor                  density        tensor                  lift
        lm_head.weight           25.3 %        lm_head.weight         1.02x

    Args:
        rows: tuples of equal length.
        right: index of the first right-aligned column.
        first: least width of the first column, with the gap after it.
        labels: how many columns say what a row is of, from the first on.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths[0] = max(widths[0], first - _GAP)
    room = width()
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
                # A second line of titles may have nothing over these columns.
                lines += [line] if line else []
                continue
            above = (" " * _GAP).join(cell for cell in row[:labels] if cell)
            lines += [above] if above else []
            lines.append((" " * _GAP + _line(row, widths, columns, right)).rstrip())
    return lines


def _line(row: Sequence[str], widths: Sequence[int], columns: Iterable[int], right: int) -> str:
    gap = " " * _GAP
    return gap.join(
        row[column].rjust(widths[column]) if column >= right else row[column].ljust(widths[column])
        for column in columns
    ).rstrip()


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

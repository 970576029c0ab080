"""Tables as aligned lines of text."""

from __future__ import annotations

from collections.abc import Iterable

from maskreg.ref import printable

Row = tuple[str, ...]


def table(rows: Iterable[Row], *, right: int = 1, first: int = 0) -> list[str]:
    """Rows as aligned lines; control characters are escaped before widths are measured.

    Args:
        rows: tuples of equal length.
        right: index of the first right-aligned column.
        first: least width of the first column, the gap after it included.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths[0] = max(widths[0], first - 2)
    return [
        "  ".join(
            cell.rjust(width) if column >= right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]

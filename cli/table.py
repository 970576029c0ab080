"""Aligned lines of text for people."""

from __future__ import annotations

import re
from collections.abc import Iterable

from maskreg.ref import printable

Row = tuple[str, ...]


def natural(label: str) -> tuple[object, ...]:
    """A key to sort labels by: numbers by size, so 2 before 10; what has no label comes last."""
    pieces = re.split(r"(\d+)", label)
    return (label == "", *((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pieces if p))


def table(rows: Iterable[Row], *, right: int = 1, first: int = 0) -> list[str]:
    """Rows as aligned lines; what would move a terminal's cursor is escaped before it is measured.

    Args:
        rows: all of one length.
        right: columns from this one on are aligned to the right.
        first: the first column is at least so wide, the gap after it included.
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

"""Tables of papers with an update beside them, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from maskreg.ref import printable

from .layout import paragraph
from .table import table

if TYPE_CHECKING:
    from maskreg.analysis.papers import TableBeside


def published(name: str, tables: Sequence[TableBeside], notes: Sequence[str]) -> str:
    """Each table: its paper, what it is about, what it printed, this update, and why figures of it are missing.

    Args:
        name: of the analysis.
        tables: of the papers.
        notes: about the analysis.
    """
    lines = paragraph(f"this update: {name}; beside it stands what rounding alone makes of noise as strong")
    for each in tables:
        lines += ["", *paragraph(each.cite)]
        lines += [line for about, text in each.terms.items() for line in paragraph(f"{about}: {text}", indent="  ")]
        titles = ("trained", *(column.title for column in each.table.columns))
        lines += ["", *table([titles, *each.texts])]
        missing: dict[str, list[str]] = {}
        for title, reason in each.missing.items():
            missing.setdefault(reason, []).append(title)
        for reason, figures in missing.items():
            lines += paragraph(f"no {', '.join(figures)}: {reason}", indent="  ")
    lines += ["", *(line for note in notes for line in paragraph(f"note: {note}", indent="  "))] if notes else []
    return "\n".join(map(printable, lines))

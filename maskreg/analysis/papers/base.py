"""Tables of papers, and the figures of an analysis that stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from maskreg.words import three_digits

Published = float | str | None
"""A number in the unit of its column; a text where the paper gives an order or a bound; None where it gives none."""

Document = Mapping[str, Any]
"""An ``analysis.json``."""

THIS, ROUNDING = "this update", "rounding null"
"""Labels of the rows that are ours."""

NOTE = "a summary of the paper; the paper itself was not at hand"
TEXT = "the paper"


@dataclass(frozen=True)
class Ours:
    """A figure of an update beside a column of a paper.

    Attributes:
        value: in the unit of the column; None where the analysis cannot give it.
        null: the same of what rounding alone makes of noise as strong; None where it is undefined.
        reason: why there is no value; empty where there is one.
    """

    value: float | None = None
    null: float | None = None
    reason: str = ""

    def times(self, factor: float) -> Ours:
        """The same in another unit."""
        value, null = (None if side is None else factor * side for side in (self.value, self.null))
        return Ours(value, null, self.reason)


@dataclass(frozen=True)
class Column:
    """A figure of a paper.

    Attributes:
        title: what it is.
        unit: of what is published and of ours; empty for a bare number.
        ours: the same figure of an analysis.
    """

    title: str
    unit: Literal["%", "degrees", ""]
    ours: Callable[[Document], Ours]


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Attributes:
        where: in the paper: its table, figure or section.
        seen: what its numbers were read from.
        scope: the tensors that it is about.
        rule: what it takes for moved.
        convention: what else has to be known to compare with it, such as how matrices are aggregated.
        columns: figures.
        rows: what was trained, and a published number for each column.
    """

    where: str
    seen: str
    scope: str
    rule: str
    convention: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[Published, ...]], ...]


@dataclass(frozen=True)
class Paper:
    """A paper whose tables stand here.

    Attributes:
        name: as typed by users.
        title: of the paper, with its number on arXiv.
        tables: in its order.
    """

    name: str
    title: str
    tables: tuple[PaperTable, ...]


@dataclass(frozen=True)
class TableBeside:
    """A table of a paper, and ours.

    Attributes:
        paper: the paper.
        table: what it printed.
        ours: a figure for each column.
    """

    paper: Paper
    table: PaperTable
    ours: tuple[Ours, ...]

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The rows as texts: what is published as it was printed, then this update and what rounding alone gives."""
        columns, ours = self.table.columns, self.ours
        rows = [
            (pair, *(_published(value, column) for value, column in zip(values, columns, strict=True)))
            for pair, values in self.table.rows
        ]
        rows.append((THIS, *(_ours(each.value, column) for each, column in zip(ours, columns, strict=True))))
        if any(each.null is not None for each in ours):
            rows.append((ROUNDING, *(_ours(each.null, column) for each, column in zip(ours, columns, strict=True))))
        return tuple(rows)

    @property
    def missing(self) -> dict[str, str]:
        """Why columns have no figure of ours, by title."""
        return {
            column.title: each.reason for column, each in zip(self.table.columns, self.ours, strict=True) if each.reason
        }

    @property
    def terms(self) -> dict[str, str]:
        """What has to be known to compare, by what it is about."""
        table = self.table
        return {"read in": table.seen, "scope": table.scope, "rule": table.rule, "convention": table.convention}

    @property
    def cite(self) -> str:
        """The source of every published number: paper and table."""
        return f"{self.paper.title}, {self.table.where}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; what is not published or not defined is null."""
        titles = [column.title for column in self.table.columns]
        return {
            "cite": self.cite,
            "seen": self.table.seen,
            "scope": self.table.scope,
            "rule": self.table.rule,
            "convention": self.table.convention,
            "units": {column.title: column.unit for column in self.table.columns},
            "published": [
                {"pair": pair, "values": dict(zip(titles, values, strict=True))} for pair, values in self.table.rows
            ],
            "ours": {title: asdict(ours) for title, ours in zip(titles, self.ours, strict=True)},
        }


def _published(value: Published, column: Column) -> str:
    if isinstance(value, float):
        value = f"{value:g}"
    return "-" if value is None else f"{value} {column.unit}".rstrip()


def _ours(value: float | None, column: Column) -> str:
    return "-" if value is None else f"{three_digits(value)} {column.unit}".rstrip()


def beside(paper: Paper, document: Document) -> tuple[TableBeside, ...]:
    """Every table of a paper, and the figures of an analysis.

    Args:
        paper: the paper.
        document: the analysis.
    """
    return tuple(
        TableBeside(paper, table, tuple(column.ours(document) for column in table.columns)) for table in paper.tables
    )

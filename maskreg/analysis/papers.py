"""Published tables, each number with its paper and table, and the same figures of an analysis beside them.

``papers.toml`` holds the tables. A column has a title, a unit (none, ``%`` or ``degrees``), and the figure of an
analysis that stands beside it: ``sparsity`` or ``density`` under a ``rule``, of tensors of some ``roles``;
``energy_share`` of ``roles``; ``relative_norm``; any other figure as its unweighted mean (or another ``statistic``)
over matrices, of one ``role`` or all, with the ``group`` of metrics it belongs to; or ``unavailable``, and why.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from maskreg.errors import UsageError
from maskreg.glossary import SOURCES
from maskreg.words import three_digits

Published = float | str | None
"""A number in the unit of its column; a text where the paper gives an order or a bound; None where it gives none."""

Document = Mapping[str, Any]
"""An ``analysis.json``."""

THIS, ROUNDING = "this update", "rounding null"
"""Labels of our rows."""

PAPERS: Mapping[str, str] = {
    "comp": f"{SOURCES['island']} (2026)",
    "dssu": SOURCES["dssu"],
    "geo": f'"{SOURCES["geo"]}", arXiv 2606.07082',
    "pnt": SOURCES["path"],
    "sub": SOURCES["subnetworks"],
}
"""The title of each paper, with its number on arXiv, by the name that users type."""


@dataclass(frozen=True)
class Ours:
    """A figure of an update, and of its rounding null, in the unit of a paper's column.

    None where the analysis cannot give it, for a ``reason``.
    """

    value: float | None = None
    null: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Column:
    """A figure of a paper, and the keys of its figure in an analysis, as in ``papers.toml``."""

    title: str
    unit: Literal["%", "degrees", ""]
    figure: Mapping[str, Any]


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Attributes:
        where: its table, figure or section.
        seen: the text that its numbers were read from.
        scope, rule: the tensors that it covers, and its rule for "moved".
        convention: further facts a comparison needs, such as how matrices are aggregated.
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
class TableBeside:
    """A table of a paper, and a figure of ours for each column."""

    title: str
    table: PaperTable
    ours: tuple[Ours, ...]

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The rows as texts: published numbers as printed, then this update and the rounding null."""
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
        columns = zip(self.table.columns, self.ours, strict=True)
        return {column.title: each.reason for column, each in columns if each.reason}

    @property
    def terms(self) -> dict[str, str]:
        """The facts a comparison needs."""
        table = self.table
        return {"read in": table.seen, "scope": table.scope, "rule": table.rule, "convention": table.convention}

    @property
    def cite(self) -> str:
        """The source of every published number: paper and table."""
        return f"{self.title}, {self.table.where}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; unpublished and undefined numbers are null."""
        table, titles = self.table, [column.title for column in self.table.columns]
        return {
            "cite": self.cite,
            "seen": table.seen,
            "scope": table.scope,
            "rule": table.rule,
            "convention": table.convention,
            "units": {column.title: column.unit for column in table.columns},
            "published": [
                {"pair": pair, "values": dict(zip(titles, values, strict=True))} for pair, values in table.rows
            ],
            "ours": {title: asdict(ours) for title, ours in zip(titles, self.ours, strict=True)},
        }


def _published(value: Published, column: Column) -> str:
    if isinstance(value, float):
        value = f"{value:g}"
    return "-" if value is None else f"{value} {column.unit}".rstrip()


def _ours(value: float | None, column: Column) -> str:
    return "-" if value is None else f"{three_digits(value)} {column.unit}".rstrip()


def check_paper(name: str) -> None:
    """Raise a :class:`UsageError` if there is no paper of that name."""
    if name not in PAPERS:
        raise UsageError(f"unknown paper {name!r}", hint=f"use one of {', '.join(PAPERS)}")


def beside(name: str, document: Document) -> tuple[TableBeside, ...]:
    """Every table of a paper, with the figures of an analysis."""
    check_paper(name)
    return tuple(
        TableBeside(PAPERS[name], table, tuple(_figure(document, column) for column in table.columns))
        for table in _tables()[name]
    )


@cache
def _tables() -> Mapping[str, tuple[PaperTable, ...]]:
    papers = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return {name: tuple(_table(**table) for table in tables) for name, tables in papers.items()}


def _table(columns: list[dict[str, Any]], rows: list[list[Any]], **texts: str) -> PaperTable:
    return PaperTable(
        columns=tuple(Column(each.pop("title"), each.pop("unit", ""), each) for each in columns),
        # TOML has no null: an empty text stands for a number that the paper does not give.
        rows=tuple((pair, tuple(None if value == "" else value for value in values)) for pair, *values in rows),
        **texts,
    )


def _figure(document: Document, column: Column) -> Ours:
    wanted = dict(column.figure)
    if reason := wanted.pop("unavailable", ""):
        return Ours(reason=reason)
    measured: Mapping[str, Callable[..., Ours]] = {
        "sparsity": _sparsity,
        "density": _density,
        "relative_norm": _norm,
        "energy_share": _energy,
    }
    name = wanted.pop("figure")
    ours = measured[name](document, **wanted) if name in measured else _mean(document, name, **wanted)
    factor = 100.0 if column.unit == "%" else 1.0
    value, null = (None if side is None else factor * side for side in (ours.value, ours.null))
    return Ours(value, null, ours.reason)


def _sparsity(document: Document, rule: str, roles: Collection[str] = ()) -> Ours:
    """Share of coordinates that did not move; all coordinates count alike."""
    groups = [document["roles"][role] for role in roles if role in document["roles"]]
    if roles and not groups:
        return _no_tensor(roles)
    groups = groups or [document["total"]]
    numel = sum(group["numel"] for group in groups)
    sides = []
    for side in ("value", "null"):
        shares = [group["sparsity"].get(rule, {}).get(side) for group in groups]
        if None in shares or not numel:
            return Ours(reason=f"density under {rule} was not measured")
        sides.append(sum(share * group["numel"] for share, group in zip(shares, groups, strict=True)) / numel)
    return Ours(*sides)


def _density(document: Document, rule: str, roles: Collection[str] = ()) -> Ours:
    still = _sparsity(document, rule, roles)
    if still.value is None or still.null is None:
        return still
    return Ours(1 - still.value, 1 - still.null)


def _norm(document: Document) -> Ours:
    """Norm of the update over the norm of the weights, all tensors together."""
    norm = document["total"]["relative_norm"]
    return Ours(reason="the weights have no norm") if norm["value"] is None else Ours(norm["value"], norm["null"])


def _energy(document: Document, roles: Collection[str]) -> Ours:
    """Share of the update's energy that lies in tensors of some roles."""
    shares = [document["roles"][role]["energy_share"] for role in roles if role in document["roles"]]
    if not shares:
        return _no_tensor(roles, "; a tied head is the embedding")
    sides = [[share[side] for share in shares] for side in ("value", "null")]
    value, null = (None if None in side else sum(side) for side in sides)
    return Ours(value, null, "" if value is not None else "nothing moved")


def _mean(document: Document, figure: str, group: str, role: str = "", statistic: str = "mean") -> Ours:
    """The unweighted mean of a figure over matrices."""
    if role and role not in document["roles"]:
        return _no_tensor((role,))
    values = (document["roles"][role] if role else document["total"])["figures"].get(figure)
    if values is None and group not in document["recipe"]["metrics"]:
        return Ours(reason=f"{figure} was not measured: analyze with the metrics {group}")
    if values is None:
        return Ours(
            reason=f"no matrix has {figure}: they are too small, or it was analyzed with another preset or rank"
        )
    if values[statistic] is None:
        return Ours(reason=f"{figure} is undefined for every matrix: they are too small, or did not move")
    return Ours(values[statistic], values.get(f"null_{statistic}"))


def _no_tensor(roles: Collection[str], more: str = "") -> Ours:
    return Ours(reason=f"the update has no tensor of {' or '.join(roles)}{more}")

"""What ``list`` can show of a name: its fields, in a table, as lines, or in a layout of one's own."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

import click

from maskreg.analysis.glossary import written
from maskreg.catalog.query import COLUMNS, RANGE_KEYS
from maskreg.ref import printable
from maskreg.words import human_bytes

from .table import width

if TYPE_CHECKING:
    from maskreg.workspace.search import Listed

FIELDS = ("ref", *(name for name in COLUMNS if name not in ("at", "rlvr_against")), "created")
"""Every field, by the name that ``--columns``, ``--format`` and ``--sort`` take."""

DEFAULT = ("ref", "digest", "kind", "family", "method", "density", "ffn_lift", "rlvr_overlap", "size", "created")
"""The columns of a list for which none were chosen."""

_FIRST_TO_GO = ("digest", "created", "rlvr_overlap", "ffn_lift", "size", "family", "kind", "method", "density")
_GAP = 2

_FIGURES = frozenset(RANGE_KEYS)
_NUMBERS = _FIGURES | {column.name for column in COLUMNS.values() if column.type is int}


def chosen(text: str) -> tuple[str, ...]:
    """The fields in ``ref,density``.

    Raises:
        click.BadParameter: a field that does not exist, or none.
    """
    names = tuple(name.strip().replace("-", "_") for name in text.split(","))
    for name in names:
        if name not in FIELDS:
            _unknown(name, "--columns")
    return names


def layout_of(text: str) -> Callable[[Listed], str]:
    """What writes a name as the text says, such as ``{ref} {density:.3f}``.

    Raises:
        click.BadParameter: the text names a field that does not exist, or is malformed.
    """
    try:
        pieces = list(string.Formatter().parse(text.replace("\\t", "\t").replace("\\n", "\n")))
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r}: {error}; write fields in braces: {{ref}}", param_hint="--format"
        ) from error
    for _, name, spec, conversion in pieces:
        # Fields alone: neither their attributes nor their items, which a format can reach too.
        if name is not None and name not in FIELDS:
            _unknown(name, "--format")
        if conversion or "{" in (spec or ""):
            raise click.BadParameter(f"{text!r}: only a field and a format may be in braces", param_hint="--format")

    def write(entry: Listed) -> str:
        return "".join(
            literal + ("" if name is None else _formatted(entry, name, spec or "")) for literal, name, spec, _ in pieces
        )

    return write


def lines(entries: Sequence[Listed], fields: Sequence[str], *, header: bool) -> Iterator[str]:
    """Names as lines of cells with tabs between them."""
    if header:
        yield "\t".join(fields)
    for entry in entries:
        yield "\t".join(_cell(entry, field) for field in fields)


def show_table(entries: Sequence[Listed], fields: Sequence[str], *, header: bool, whole: bool) -> list[str]:
    """Print names as a table on a terminal.

    Args:
        entries: the names.
        fields: the columns, in this order.
        header: whether their names stand above them.
        whole: show every column, and let lines wrap; else as many as the terminal has room for.

    Returns:
        The columns that were left out.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=width())
    rows: list[Mapping[str, str]] = [{field: _cell(entry, field) for field in fields} for entry in entries]
    widths = {field: max(cell_len(row[field]) for row in ({field: field}, *rows)) for field in fields}
    shown = list(fields)
    for field in () if whole else _FIRST_TO_GO:
        if sum(widths[name] + _GAP for name in shown) - _GAP > console.width:
            shown.remove(field)
    table = Table(box=None, pad_edge=False, show_header=header)
    for field in shown:
        table.add_column(field, justify="right" if field in _NUMBERS else "left", no_wrap=True)
    for row in rows:
        # Text, so that brackets in a card are not taken for markup.
        table.add_row(*(Text(row[field]) for field in shown))
    # A truncated reference is useless, and columns that were chosen are shown whole: wider lines wrap.
    console.width = max(console.width, sum(widths[name] + _GAP for name in shown) - _GAP)
    console.print(table)
    return [field for field in fields if field not in shown]


def _value(entry: Listed, field: str) -> object:
    return entry.at if field == "created" else getattr(entry, field)


def _cell(entry: Listed, field: str) -> str:
    value = _value(entry, field)
    if field == "digest":
        return entry.digest.short
    if value is None or value == "":
        return "-"
    if field == "size":
        return human_bytes(entry.size)
    if field in _FIGURES:
        return written(field, value)  # type: ignore[arg-type]  # a figure
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def _formatted(entry: Listed, field: str, spec: str) -> str:
    value = _value(entry, field)
    if value is None:
        return "-"
    if isinstance(value, datetime) and not spec:
        return value.isoformat()
    plain = value if isinstance(value, int | float | datetime) else str(value)
    try:
        return printable(format(plain, spec))
    except ValueError as error:
        raise click.BadParameter(f"{field}:{spec}: {error}", param_hint="--format") from error


def _unknown(name: str, option: str) -> NoReturn:
    raise click.BadParameter(f"there is no field {name!r}; fields: {', '.join(FIELDS)}", param_hint=option)

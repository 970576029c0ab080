"""``maskreg list``: list and search the artifacts of a registry."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from maskreg.catalog.query import COLUMNS, EQUAL_KEYS, RANGE_KEYS
from maskreg.errors import DataError, UsageError
from maskreg.glossary import FIGURES, written
from maskreg.ref import printable
from maskreg.words import counted, human_bytes
from maskreg.workspace import verbs

from .command import Command, workspace
from .next_step import stated
from .output import Output, told
from .table import UNLIMITED, columns_of, table, width
from .values import RANGE, IntegerType

FIELDS = ("ref", *(name for name in COLUMNS if name not in ("at", "rlvr_against")), "created")
"""Every field, by the name that ``--columns`` and ``--sort`` take."""


def _column_options(function: Any) -> Any:
    """An option for each column that is searched by: a text, a choice of kinds, or a range."""
    for name in reversed((*EQUAL_KEYS, *RANGE_KEYS)):
        option, column = name.replace("_", "-"), COLUMNS[name]
        values: dict[str, Any] = {}
        if name in RANGE_KEYS:
            values = {"type": RANGE, "metavar": "LO..HI"}
        elif column.values:
            values = {"type": click.Choice(column.values), "metavar": name.upper()}
        text = FIGURES[option].brief if option in FIGURES else column.help
        function = click.option(f"--{option}", help=text, **values)(function)
    return function


@click.command(
    cls=Command,
    example="""
    maskreg list qwen3 --method opd --density 0.4..0.6 --sort density
    maskreg list --remote lab --ffn-lift 1.05.. --json
    maskreg list 'team/*' --columns ref,density,created
    maskreg list -q --limit 1 | maskreg apply -
    """,
)
@click.argument("words", nargs=-1, metavar="[TEXT]...")
@_column_options
@click.option("--sort", default="created", metavar="KEY[:asc|desc]", help="Sort key, such as density:asc [created].")
@click.option("--limit", type=IntegerType(0), help="Maximum number of results.")
@click.option("--remote", help="List a remote, not the local registry.")
@click.option("--columns", metavar="FIELD,...", help=f"Fields to show, in this order, of: {', '.join(FIELDS)}.")
@click.option("--strict", is_flag=True, help="Read every name, except on a server; exit with 65 if one is left out.")
@click.pass_obj
def command(
    output: Output,
    /,
    words: tuple[str, ...],
    sort: str,
    remote: str | None,
    columns: str | None,
    strict: bool,
    **filters: Any,
) -> None:
    """List and search artifacts.

    Each TEXT must begin a word of the name, project, family or description, or the digest: 8b finds qwen3-8b-opd, and
    3-8b does not. With a '/', ':', '@', '*' or '?' in it, it is compared with the whole reference: team/opd,
    team/opd:v1, 'team/*', opd@sha256:4be0. A name whose artifact or ref entry is damaged cannot be searched; it is left
    out, with a note on stderr.

    LO..HI is a range that includes both ends. Leave one out for no bound: 0.4.. is 0.4 or more, ..0.6 is 0.6 or less.
    """
    key, _, order = sort.partition(":")
    if order not in ("", "asc", "desc"):
        raise click.BadParameter(f"{order!r} is neither asc nor desc", param_hint="--sort")
    if columns is not None and output.json:
        raise click.UsageError("choose --columns or --json, which has every field")
    fields = DEFAULT if columns is None else chosen(columns)
    entries = verbs.search.search(
        " ".join(words) if words else None,
        sort=key.replace("-", "_"),
        descending=order != "asc",
        strict=strict,
        remote=remote,
        workspace=workspace(output),
        **filters,
    )
    if output.json:
        output.reported = strict
        output.document(stated(entries.to_json(), entries.error))
    elif output.quiet and columns is None:
        for entry in entries:
            output.data(str(entry.ref))
    elif entries:
        at_terminal = sys.stdout.isatty()
        # Columns that were chosen are shown whole, like references, of which a part is useless: wider lines wrap.
        shown = fitting(entries, fields) if at_terminal and columns is None else fields
        rows = [tuple(_cell(entry, field) for field in shown) for entry in entries]
        rows = rows if output.quiet else [tuple(shown), *rows]
        numbers = [number for number, field in enumerate(shown) if field in _NUMBERS]
        for line in table(rows, right=numbers, room=UNLIMITED) if at_terminal else map("\t".join, rows):
            output.data(line)
        if narrow := [field for field in fields if field not in shown]:
            text = f"columns left out for want of room: {', '.join(narrow)}"
            output.note(UsageError(text, options={"columns": ",".join(fields)}))
    if entries.remark:
        output.note(entries.error or entries.remark)
    for name in entries.left_out:
        output.warn(told(f"left out: {name.ref}: {name.reason}", name.error))
    if strict and entries.left_out:
        first = entries.left_out[0].error
        raise DataError(f"{counted(len(entries.left_out), 'name')} left out", hint=first.hint, **first.facts)


DEFAULT = ("ref", "digest", "kind", "family", "method", "density", "ffn_lift", "rlvr_overlap", "size", "created")
"""The columns of a list for which none were chosen."""

_FIRST_TO_GO = ("digest", "created", "rlvr_overlap", "ffn_lift", "size", "family", "kind", "method", "density")
_GAP = 2

_FIGURES = frozenset(RANGE_KEYS)
_NUMBERS = _FIGURES | {column.name for column in COLUMNS.values() if column.type is int}


def chosen(text: str) -> tuple[str, ...]:
    """The fields in ``ref,density``."""
    names = tuple(name.strip().replace("-", "_") for name in text.split(","))
    for name in names:
        if name not in FIELDS:
            raise click.BadParameter(f"there is no field {name!r}; fields: {', '.join(FIELDS)}", param_hint="--columns")
    return names


def fitting(entries: Sequence[verbs.search.Listed], fields: Sequence[str]) -> list[str]:
    """The fields whose columns fit the terminal beside each other."""
    widths = {field: max(columns_of(text) for text in (field, *(_cell(e, field) for e in entries))) for field in fields}
    shown = list(fields)
    for field in _FIRST_TO_GO:
        if sum(widths[name] + _GAP for name in shown) - _GAP > width() and field in shown:
            shown.remove(field)
    return shown


def _cell(entry: verbs.search.Listed, field: str) -> str:
    value = entry.at if field == "created" else getattr(entry, field)
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

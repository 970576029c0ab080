"""``maskreg list``: list and search the artifacts of a registry."""

from __future__ import annotations

import sys
from typing import Any

import click

from maskreg.analysis.glossary import FIGURES
from maskreg.catalog.query import COLUMNS, EQUAL_KEYS, RANGE_KEYS
from maskreg.errors import DataError
from maskreg.words import counted

from .command import Command, again, workspace
from .next_step import stated
from .output import Output, told
from .values import RANGE, IntegerType


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
    maskreg list team/qwen3-8b-opd
    maskreg list 'team/*' --columns ref,density,created
    maskreg list --format '{ref} {digest} {density:.3f}'
    maskreg list -q --limit 1 | maskreg apply -
    """,
)
@click.argument("words", nargs=-1, metavar="[TEXT]...")
@_column_options
@click.option(
    "--sort", default="created", show_default=True, metavar="KEY[:asc|desc]", help="Sort key, such as density:asc."
)
@click.option("--limit", type=IntegerType(0), help="Maximum number of results.")
@click.option("--remote", help="List a remote, not the local registry.")
@click.option("--columns", metavar="FIELD,...", help="Fields to show, in this order.")
@click.option("--format", "layout", metavar="TEXT", help="One line for each name, such as '{ref} {digest}'.")
@click.option("--strict", is_flag=True, help="Exit with 65 if a damaged name is left out.")
@click.pass_obj
def command(
    output: Output,
    /,
    words: tuple[str, ...],
    sort: str,
    remote: str | None,
    columns: str | None,
    layout: str | None,
    strict: bool,
    **filters: Any,
) -> None:
    r"""List and search artifacts.

    Each TEXT must begin a word of the name, project, family or description, or the digest: 8b finds qwen3-8b-opd, and
    3-8b does not. With a '/', ':', '@', '*' or '?' in it, it is compared with the whole reference: team/opd,
    team/opd:v1, 'team/*', opd@sha256:4be0. A name whose artifact or ref entry is damaged cannot be searched; it is left
    out, with a note on stderr.

    LO..HI is a range that includes both ends. Leave one out for no bound: 0.4.. is 0.4 or more, ..0.6 is 0.6 or less.

    Fields: ref, project, name, tag, digest, kind, family, method, license, description, rule, exact, density,
    ffn_density, ffn_share, ffn_lift, rlvr_overlap, nnz, numel, params, size, source_root, source_hub, target_root, by,
    created. In --format, each may have a Python format after a colon; \t and \n stand for a tab and a new line. Values
    are the fields of --json.
    """
    from maskreg.workspace.search import search

    from .fields import DEFAULT, chosen, layout_of, lines, show_table

    key, _, order = sort.partition(":")
    if order not in ("", "asc", "desc"):
        raise click.BadParameter(f"{order!r} is neither asc nor desc", param_hint="--sort")
    if (columns is not None) + (layout is not None) + output.json > 1:
        raise click.UsageError("choose one of --columns, --format and --json, which has every field")
    fields = DEFAULT if columns is None else chosen(columns)
    write = None if layout is None else layout_of(layout)
    entries = search(
        " ".join(words) if words else None,
        sort=key.replace("-", "_"),
        descending=order != "asc",
        remote=remote,
        workspace=workspace(output),
        **filters,
    )
    if output.json:
        output.reported = strict
        output.document(stated(entries.to_json(), entries.error))
    elif write is not None:
        for entry in entries:
            output.data(write(entry))
    elif output.quiet and columns is None:
        for entry in entries:
            output.data(str(entry.ref))
    elif entries and sys.stdout.isatty():
        output.make_room()
        if narrow := show_table(entries, fields, header=not output.quiet, whole=columns is not None):
            step = again("--columns", ",".join(fields))
            output.note(f"columns left out for want of room: {', '.join(narrow)}\n  next: {step}")
    elif entries:
        for line in lines(entries, fields, header=not output.quiet):
            output.data(line)
    if entries.remark:
        output.note(entries.error or entries.remark)
    for name in entries.left_out:
        output.note(told(f"left out: {name.ref}: {name.reason}", name.error))
    if strict and entries.left_out:
        first = entries.left_out[0].error
        raise DataError(f"{counted(len(entries.left_out), 'name')} left out", hint=first.hint, **first.facts)

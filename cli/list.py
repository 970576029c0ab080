"""``maskreg list``: list and search the artifacts of a registry."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from maskreg.analysis.glossary import FIGURES
from maskreg.errors import DataError
from maskreg.ref import printable
from maskreg.words import counted, human_bytes

from .command import Command, workspace
from .output import Output
from .values import RANGE, IntegerType

if TYPE_CHECKING:
    from maskreg.workspace.search import Listed

_RANGES = ("density", "ffn-density", "ffn-share", "ffn-lift", "rlvr-overlap")
_COLUMNS = ("ref", "digest", "kind", "family", "method", "density", "ffn lift", "rlvr overlap", "size", "created")
_FIRST_TO_GO = ("digest", "created", "rlvr overlap", "ffn lift", "size", "family", "kind", "method", "density")
_GAP = 2


def _range_options(function: Any) -> Any:
    for name in reversed(_RANGES):
        function = click.option(f"--{name}", type=RANGE, metavar="LO..HI", help=FIGURES[name].brief)(function)
    return function


@click.command(
    cls=Command,
    example="""
    maskreg list qwen3 --method opd --density 0.4..0.6 --sort density
    maskreg list --remote lab --ffn-lift 1.05.. --json
    maskreg list -q --limit 1 | maskreg apply -
    """,
)
@click.argument("words", nargs=-1, metavar="[TEXT]...")
@click.option("--family", help="Model family, such as qwen3-8b.")
@click.option("--method", help="How the target was trained: opd, rlvr, sft or another word.")
@click.option("--project", help="Project that the names are in.")
@click.option("--license", help="SPDX identifier, such as apache-2.0.")
@click.option(
    "--kind",
    type=click.Choice(["mask", "delta", "baseline", "analysis"]),
    metavar="KIND",
    help="Kind of artifact: mask, delta, baseline or analysis.",
)
@_range_options
@click.option(
    "--sort", default="created", show_default=True, metavar="KEY[:asc|desc]", help="Sort key, such as density:asc."
)
@click.option("--limit", type=IntegerType(0, (1 << 63) - 1), help="Maximum number of results.")
@click.option("--remote", help="List a remote, not the local registry.")
@click.option("--strict", is_flag=True, help="Exit with 65 if a damaged name is left out.")
@click.pass_obj
def command(
    output: Output, /, words: tuple[str, ...], sort: str, remote: str | None, strict: bool, **filters: Any
) -> None:
    """List and search artifacts.

    Each TEXT must occur in the name, project, family or description, or begin the digest.
    Ranges are written 0.4..0.6, 0.4.. or ..0.6, both ends included.
    A name whose artifact or ref entry is damaged cannot be searched; it is left out, with a note on stderr.
    """
    from maskreg.workspace.search import search

    key, _, order = sort.partition(":")
    if order not in ("", "asc", "desc"):
        raise click.BadParameter(f"{order!r} is neither asc nor desc", param_hint="--sort")
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
        output.document(entries.to_json())
    elif output.quiet:
        for entry in entries:
            output.data(str(entry.ref))
    elif sys.stdout.isatty():
        _table(entries)
    else:
        for line in (_COLUMNS, *(_cells(entry) for entry in entries)):
            output.data("\t".join(line))
    for name in entries.left_out:
        output.note(f"left out: {name.ref}: {name.reason}" + f"\n  next: {name.hint}")
    if strict and entries.left_out:
        raise DataError(f"{counted(len(entries.left_out), 'name')} left out", hint=entries.left_out[0].hint)


def _cells(entry: Listed) -> tuple[str, ...]:
    lift, overlap = ("-" if value is None else f"{value:.3f}" for value in (entry.ffn_lift, entry.rlvr_overlap))
    cells = (
        *(str(entry.ref), entry.digest.short, entry.kind, entry.family or "-", entry.method or "-"),
        *(f"{entry.density:.4f}", lift, overlap, human_bytes(entry.size), f"{entry.at:%Y-%m-%d %H:%M}"),
    )
    return tuple(map(printable, cells))


def _table(entries: Sequence[Listed]) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    rows = [dict(zip(_COLUMNS, _cells(entry), strict=True)) for entry in entries]
    widths = {column: max(cell_len(row[column]) for row in ({column: column}, *rows)) for column in _COLUMNS}
    shown = list(_COLUMNS)
    for column in _FIRST_TO_GO:
        if sum(widths[name] + _GAP for name in shown) - _GAP > console.width:
            shown.remove(column)
    table = Table(box=None, pad_edge=False)
    for column in shown:
        number = column in ("density", "ffn lift", "rlvr overlap", "size")
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        # Text, so that brackets in a card are not taken for markup.
        table.add_row(*(Text(row[column]) for column in shown))
    # A truncated reference is useless: one that is wider than the terminal wraps.
    console.width = max(console.width, widths["ref"])
    console.print(table)

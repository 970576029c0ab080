"""``maskreg import``: read an artifact that ``export`` wrote."""

from __future__ import annotations

import sys

import click

from maskreg.ref import Ref
from maskreg.words import counted, human_bytes

from .command import Command, workspace
from .output import Output
from .values import NAME


@click.command(
    "import",
    cls=Command,
    example="""
    maskreg import qwen3-8b-opd.maskreg
    ssh near maskreg export qwen3-8b-opd -o - | maskreg import -
    """,
)
@click.argument("file", metavar="FILE|-")
@click.option("--name", "ref", type=NAME, metavar="NAME[:TAG]", help="What to call it [the name in the file].")
@click.pass_obj
def command(output: Output, file: str, ref: Ref | None) -> None:
    """Read an artifact that `export` wrote.

    Every object is hashed before anything becomes visible.
    """
    if file == "-" and sys.stdin.isatty():
        raise click.UsageError("stdin is a terminal: give a FILE, or a pipe")
    from maskreg.workspace.import_ import import_

    stream = sys.stdin.buffer if file == "-" else file
    with output.progress() as progress:
        imported = import_(stream, ref, progress=progress, workspace=workspace(output))
    if output.json:
        output.document(imported.to_json())
    else:
        output.note(
            f"{counted(imported.objects, 'object')}, {human_bytes(imported.bytes)} imported, the rest was present"
        )
        output.data(str(imported.ref.pinned(imported.digest)))

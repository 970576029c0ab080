"""``maskreg import``: take in what ``export`` wrote."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from maskreg.errors import NotFoundError
from maskreg.ref import Ref
from maskreg.words import counted

from .command import Command
from .output import Output, human_bytes
from .values import REF


@click.command(
    "import",
    cls=Command,
    example="""
    maskreg import qwen3-8b-opd.maskreg
    ssh near maskreg export qwen3-8b-opd -o - | maskreg import -
    """,
)
@click.argument("file", metavar="FILE|-")
@click.option(
    "--name", "ref", type=REF, metavar="NAME[:TAG]", help="What to call it; the name in the file when left out."
)
@click.pass_obj
def command(output: Output, file: str, ref: Ref | None) -> None:
    """Take in an artifact that `export` wrote.

    Every object is hashed before anything of it becomes visible.
    """
    if file == "-" and sys.stdin.isatty():
        raise click.UsageError("nothing comes down a pipe; give a FILE")
    from maskreg.registry.archive import import_file

    from .places import local, note_catalog

    here = local()
    if file == "-":
        with output.progress() as progress:
            done = import_file(here, sys.stdin.buffer, ref=ref, progress=progress)
    else:
        path = Path(file)
        if not path.is_file():
            raise NotFoundError(f"there is no file {file}")
        with path.open("rb") as stream, output.progress() as progress:
            done = import_file(here, stream, ref=ref, progress=progress)
    note_catalog(output, here)
    entry = done.entry
    if output.json:
        parts = sorted(done.parts)
        output.document(
            {
                "ref": str(entry.ref),
                "digest": entry.digest,
                "parts": parts,
                "objects": done.objects,
                "bytes": done.bytes,
            }
        )
    else:
        output.note(f"{counted(done.objects, 'object')}, {human_bytes(done.bytes)}; the rest was here")
        output.data(f"{entry.ref}@{entry.digest}")

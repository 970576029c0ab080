"""``maskreg import``: take in what ``export`` wrote."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from maskreg.errors import NotFoundError

from .command import Command
from .output import Output


@click.command(
    "import",
    cls=Command,
    example="""
    maskreg import qwen3-8b-opd.maskreg
    ssh near maskreg export qwen3-8b-opd -o - | maskreg import -
    """,
)
@click.argument("file", metavar="FILE|-")
@click.pass_obj
def command(output: Output, file: str) -> None:
    """Bring the artifact of an exported file into the local registry.

    Every object is hashed before anything of it becomes visible.
    """
    if file == "-" and sys.stdin.isatty():
        raise click.UsageError("nothing comes down a pipe; give a FILE")
    from maskreg.registry.archive import import_file

    from .places import local

    here = local()
    if file == "-":
        with output.progress() as progress:
            entry = import_file(here, sys.stdin.buffer, progress)
    else:
        path = Path(file)
        if not path.is_file():
            raise NotFoundError(f"there is no file {file}")
        with path.open("rb") as stream, output.progress() as progress:
            entry = import_file(here, stream, progress)
    if output.json:
        output.document({"ref": str(entry.ref), "digest": entry.digest, "n": entry.n})
    else:
        output.data(f"{entry.ref}@{entry.digest}")

"""``maskreg export``: write one artifact to one file, for machines without a network between them."""

from __future__ import annotations

import sys

import click

from maskreg.ref import Ref
from maskreg.words import counted, human_bytes

from .command import Command, workspace
from .output import Output
from .values import NAME, REF


@click.command(
    cls=Command,
    example="""
    maskreg export qwen3-8b-opd -o qwen3-8b-opd.maskreg
    maskreg export qwen3-8b-opd -o - | ssh far maskreg import -
    """,
)
@click.argument("ref", type=REF)
@click.option(
    "-o", "--out", required=True, metavar="FILE|-", help="File to write, in folders made if missing; - is stdout."
)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.pass_obj
def command(output: Output, ref: Ref, out: str, force: bool) -> None:
    """Write an artifact, its card and its name to one file.

    Every object is hashed. The file appears when it is complete.
    """
    if out == "-" and output.json:
        raise click.UsageError("stdout cannot hold both the archive and JSON: write the archive to a file")
    if out == "-" and sys.stdout.isatty():
        raise click.UsageError("an archive is not printed to a terminal: use -o FILE, or a pipe")
    if "://" in out:
        raise click.UsageError(f"{out} is a URL, and an archive is written to a file; maskreg push writes to a bucket")
    from maskreg.workspace.verbs.export import export

    file = sys.stdout.buffer if out == "-" else out
    with output.progress() as progress:
        exported = export(ref, file, force=force, progress=progress, workspace=workspace(output))
    if out == "-":
        sys.stdout.buffer.flush()
    elif not output.printed(exported):
        output.note(f"{exported.ref} ({exported.digest.short}), {human_bytes(exported.size)}")
        output.value(out)


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
def import_(output: Output, file: str, ref: Ref | None) -> None:
    """Read an artifact that `export` wrote.

    Every object is hashed before anything becomes visible.
    """
    if file == "-" and sys.stdin.isatty():
        raise click.UsageError("stdin is a terminal: give a FILE, or a pipe")
    from maskreg.workspace.verbs.export import import_

    stream = sys.stdin.buffer if file == "-" else file
    with output.progress() as progress:
        imported = import_(stream, ref, progress=progress, workspace=workspace(output))
    if not output.printed(imported):
        output.note(
            f"{counted(imported.objects, 'object')}, {human_bytes(imported.bytes)} imported, the rest was present"
        )
        output.data(str(imported.ref.pinned(imported.digest)))

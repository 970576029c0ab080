"""``maskreg export``: one artifact as one file, for machines without a network between them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from maskreg.disk import replacing
from maskreg.ref import Ref

from .command import Command
from .output import Output, human_bytes
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg export qwen3-8b-opd -o qwen3-8b-opd.maskreg
    maskreg export qwen3-8b-opd -o - | ssh far maskreg import -
    """,
)
@click.argument("ref", type=REF)
@click.option("-o", "--out", required=True, metavar="FILE|-", help="The file to write; - is stdout.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.pass_obj
def command(output: Output, ref: Ref, out: str, force: bool) -> None:
    """Write an artifact, its card and its name into one file.

    The file appears when it is whole; every object is hashed on the way.
    """
    if not out:
        raise click.UsageError("an empty text names no file")
    if out == "-" and output.json:
        raise click.UsageError("stdout cannot hold the archive and JSON; write the archive to a file")
    if out == "-" and sys.stdout.isatty():
        raise click.UsageError("an archive is not for a terminal; write -o FILE or send it down a pipe")
    from maskreg.registry.archive import export_file

    from .places import local

    here = local()
    if out == "-":
        stream = sys.stdout.buffer
        with output.progress() as progress:
            export_file(here, ref, stream, progress=progress)
        stream.flush()
        return
    path = Path(out)
    with output.progress() as progress, replacing(path, force=force) as file:
        done = export_file(here, ref, file, progress=progress)
    if output.json:
        parts = sorted(done.parts)
        output.document(
            {"ref": str(done.ref), "digest": done.digest, "parts": parts, "path": str(path), "size": done.bytes}
        )
        return
    output.note(f"{done.ref} ({done.digest.short}), {human_bytes(done.bytes)}")
    output.data(str(path))

"""``maskreg rm``: take a name away."""

from __future__ import annotations

import sys

import click

from maskreg.ref import Ref

from .command import Command
from .output import Output
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg rm qwen3-8b-opd:old
    maskreg rm -y team/qwen3-8b-opd:v1 && maskreg gc --dry-run
    """,
)
@click.argument("ref", type=REF)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(output: Output, ref: Ref, yes: bool) -> None:
    """Take a tag away.

    `restore` brings it back until `gc` has collected its objects.
    """
    from maskreg.registry.tags import remove

    from .places import local, note_catalog

    here = local()
    found = here.resolve(ref)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"{ref} is not removed without -y when nobody can be asked")
        click.confirm(f"remove {ref} ({found.digest.short})?", abort=True, err=True)
    entry = remove(here, ref)
    note_catalog(output, here)
    if output.json:
        output.document({"ref": str(entry.ref), "digest": str(found.digest), "n": entry.n})
    else:
        output.note(f"removed {entry.ref} ({found.digest.short}); back with: maskreg restore {entry.ref}")

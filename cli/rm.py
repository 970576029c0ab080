"""``maskreg rm``: remove a tag."""

from __future__ import annotations

import sys

import click

from maskreg.ref import Ref

from .command import Command, workspace
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
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def command(output: Output, ref: Ref, yes: bool) -> None:
    """Remove a tag.

    `restore` brings it back until `gc` has deleted the artifact.
    """
    from maskreg.workspace.remove import remove

    space = workspace(output)
    if not yes:
        digest = space.local.resolve(ref).digest
        if not sys.stdin.isatty():
            raise click.UsageError(f"stdin is not a terminal, so removing {ref} needs -y")
        click.confirm(f"remove {ref} ({digest.short})?", abort=True, err=True)
    removed = remove(ref, workspace=space)
    if output.json:
        output.document(removed.to_json())
    else:
        output.note(f"removed {removed.ref} ({removed.digest.short}); back with: maskreg restore {removed.ref}")

"""``maskreg rm``: remove tags."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from maskreg.digest import Digest
from maskreg.errors import UsageError
from maskreg.ref import Ref, ShortDigest

from .command import Command, again, workspace
from .output import Output
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg rm qwen3-8b-opd:old
    maskreg rm team/qwen3-8b-opd:v1 --remote lab
    maskreg rm -y team/qwen3-8b-opd:v1 team/qwen3-8b-opd:v2 && maskreg gc --dry-run
    """,
)
@click.argument("refs", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("--remote", help="Remove them on a remote, not in the local registry.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def command(output: Output, refs: tuple[Ref | Digest | ShortDigest, ...], remote: str | None, yes: bool) -> None:
    """Remove tags.

    All of them must exist, or none is removed. `restore` brings a tag back until `gc` has deleted the artifact.
    """
    from maskreg.workspace.remove import remove
    from maskreg.workspace.several import tags_of

    space = workspace(output)
    tags = tags_of(space, refs, remote)
    if not yes:
        # The digest shows what is lost; it also keeps a tag that moves meanwhile.
        shown = [f"{replace(tag, digest=None)} ({tag.digest.short})" for tag in tags if tag.digest]
        if not sys.stdin.isatty():
            names = ", ".join(str(replace(tag, digest=None)) for tag in tags)
            raise UsageError(f"stdin is not a terminal, so removing {names} needs -y", hint=again("-y"))
        output.ask(f"remove {', '.join(shown)}?")
    removed = []
    option = f" --remote {remote}" if remote else ""
    for tag in tags:
        removed.append(remove(tag, remote=remote, workspace=space))
        last = removed[-1]
        if not output.json:
            output.note(f"removed {last.ref} ({last.digest.short}); back with: maskreg restore {last.ref}{option}")
    if output.json:
        output.document([tag.to_json() for tag in removed])

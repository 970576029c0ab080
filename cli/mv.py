"""``maskreg mv``: rename a tag."""

from __future__ import annotations

import click

from maskreg.digest import Digest
from maskreg.ref import Ref, ShortDigest

from .command import Command, workspace
from .output import Output
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg mv qwen3-8b-opd:v1 team/qwen3-8b-opd
    maskreg mv qwen3-8b-opd:v1 qwen3-8b-opd:first
    maskreg mv --all qwen3-8b-opd team/qwen3-8b-opd
    """,
)
@click.argument("old", type=REF)
@click.argument("new")
@click.option("--all", "all_tags", is_flag=True, help="Move every tag of the name OLD.")
@click.option("--remote", help="Rename on a remote, not in the local registry.")
@click.option("--force", is_flag=True, help="Replace a name that points to another artifact.")
@click.pass_obj
def command(
    output: Output, /, old: Ref | Digest | ShortDigest, new: str, all_tags: bool, remote: str | None, force: bool
) -> None:
    """Rename the tag OLD to NEW.

    NEW is [project/]name[:tag]; without a tag it keeps that of OLD. The history of OLD stays, and `restore` brings it
    back; what NEW pointed to stays in its history. Remotes keep the old name until you push the new one, or rename
    it there with --remote; on a service, that needs the role admin in the project of OLD. For a moment both names are
    there; when the command is interrupted then, the next `mv` in the same registry on this machine removes the old one.
    """
    from maskreg.workspace.move import mv

    moved = mv(old, new, all_tags=all_tags, force=force, remote=remote, workspace=workspace(output))
    if output.json:
        output.document([row.to_json() for row in moved])
        return
    for row in moved:
        output.data(str(row.new.pinned(row.digest)))
        # Spelled in full: a tag that is left out means that of the first name.
        back = f"{row.old.project}/{row.old.name}:{row.old.tag}"
        where = f" --remote {remote}" if remote else ""
        output.note(f"{row.old} is {row.new} now; back with: maskreg mv {row.new} {back}{where}")

"""``maskreg push``: publish an artifact on a remote."""

from __future__ import annotations

import click

from maskreg.ref import Ref
from maskreg.words import counted, human_bytes

from .command import Command, workspace
from .output import Output
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg push qwen3-8b-opd
    maskreg push team/qwen3-8b-opd --remote lab --tag v3
    """,
)
@click.argument("ref", type=REF)
@click.option("--remote", help="Remote to publish on [the default remote].")
@click.option("--tag", help="Tag to set on the remote [the local tag].")
@click.option("--force", is_flag=True, help="Replace what somebody else set the tag to.")
@click.option("--allow-rollback", is_flag=True, help="Take the remote's tag as it is, even if its log went back.")
@click.pass_obj
def command(output: Output, ref: Ref, remote: str | None, tag: str | None, force: bool, allow_rollback: bool) -> None:
    """Publish an artifact on a remote.

    Missing objects are transferred first, each one hashed; the tag is set last. A tag that somebody else has set to
    another artifact since you last pulled or pushed it is left alone, and the command exits with 75.
    """
    from maskreg.workspace.push import push

    with output.progress() as progress:
        pushed = push(
            ref,
            remote=remote,
            tag=tag,
            force=force,
            progress=progress,
            allow_rollback=allow_rollback,
            workspace=workspace(output),
        )
    if output.json:
        output.document(pushed.to_json())
        return
    output.data(f"{pushed.ref}@{pushed.digest}")
    output.note(
        f"pushed to {pushed.remote}: {counted(pushed.sent_objects, 'object')}, {human_bytes(pushed.sent_bytes)} sent, "
        f"{human_bytes(pushed.reused_bytes)} already there"
    )

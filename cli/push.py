"""``maskreg push``: publish an artifact on a remote."""

from __future__ import annotations

from typing import Any

import click

from maskreg.digest import Digest
from maskreg.ref import Ref, ShortDigest
from maskreg.words import counted, human_bytes

from .command import Command, workspace
from .output import Output
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg push qwen3-8b-opd
    maskreg push team/qwen3-8b-opd --remote lab --tag v3
    maskreg push seed-1 seed-2 seed-3
    """,
)
@click.argument("refs", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("--remote", help="Remote to publish on [the default remote].")
@click.option("--tag", help="Tag to set on the remote, of one REF [the local tag].")
@click.option("--force", is_flag=True, help="Replace what another user set the tag to.")
@click.option("--allow-rollback", is_flag=True, help="Take the remote's tag as it is, even if its log went back.")
@click.pass_obj
def command(output: Output, /, refs: tuple[Ref | Digest | ShortDigest, ...], tag: str | None, **options: Any) -> None:
    """Publish artifacts on a remote.

    All of them must exist, or none is sent. Missing objects are transferred first, each one hashed; the tag is set
    last. A tag that another user has set to another artifact since you last pulled or pushed it is left alone, and
    the command exits with 75.
    """
    from maskreg.workspace.several import tags_of
    from maskreg.workspace.verbs.push import push

    if tag is not None and len(refs) > 1:
        raise click.UsageError("--tag names the tag of one artifact: push them one by one")
    space = workspace(output)
    # With the digest that each tag has now, unless there is one alone: its hints read better without.
    artifacts = tags_of(space, refs) if len(refs) > 1 else refs
    done = []
    with output.progress() as progress:
        for artifact in artifacts:
            pushed = push(artifact, tag=tag, **options, progress=progress, workspace=space)
            done.append(pushed)
            if not output.json:
                output.data(str(pushed.ref.pinned(pushed.digest)))
                output.note(
                    f"pushed to {pushed.remote}: {counted(pushed.sent_objects, 'object')}, "
                    f"{human_bytes(pushed.sent_bytes)} sent, {human_bytes(pushed.reused_bytes)} already there"
                )
    if output.json:
        output.document([pushed.to_json() for pushed in done])

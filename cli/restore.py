"""``maskreg restore``: bring a removed tag back."""

from __future__ import annotations

import click

from maskreg.ref import Ref

from .command import Command, workspace
from .output import Output
from .values import REF


@click.command(cls=Command, example="maskreg restore qwen3-8b-opd:old")
@click.argument("ref", type=REF)
@click.option("--remote", help="Bring it back on a remote, not in the local registry.")
@click.pass_obj
def command(output: Output, ref: Ref, remote: str | None) -> None:
    """Bring a removed tag back as it was."""
    from maskreg.workspace.restore import restore

    restored = restore(ref, remote=remote, workspace=workspace(output))
    if output.json:
        output.document(restored.to_json())
    else:
        output.data(str(restored.ref.pinned(restored.digest)))

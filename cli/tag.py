"""``maskreg tag``: give an artifact more names."""

from __future__ import annotations

import click

from maskreg.ref import Ref

from .command import Command, workspace
from .output import Output
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg tag qwen3-8b-opd v3 best
    maskreg tag team/qwen3-8b-opd v3 --immutable
    maskreg tag qwen3-8b-opd@sha256:<64 hex> team/qwen3-8b-opd:paper
    """,
)
@click.argument("ref", type=REF)
@click.argument("new", nargs=-1, required=True)
@click.option("--remote", help="Set them on a remote, not in the local registry.")
@click.option("--immutable", is_flag=True, help="NEW must never point to another artifact; cannot be undone.")
@click.pass_obj
def command(output: Output, ref: Ref, new: tuple[str, ...], remote: str | None, immutable: bool) -> None:
    """Give an artifact more names.

    REF keeps its own. NEW is a tag of the same name, or a whole reference when it holds a '/' or a ':'.
    A tag that exists moves, unless it is immutable.
    """
    from maskreg.workspace.tag import tag

    names = tag(ref, *new, immutable=immutable, remote=remote, workspace=workspace(output))
    if output.json:
        output.document([name.to_json() for name in names])
        return
    for name in names:
        output.data(str(name.ref.pinned(name.digest)))

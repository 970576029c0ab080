"""``maskreg tag``: give an artifact more names."""

from __future__ import annotations

import click

from maskreg.ref import Ref

from .command import Command
from .output import Output
from .values import REF


@click.command(
    cls=Command,
    example="""
    maskreg tag qwen3-8b-opd v3 best
    maskreg tag qwen3-8b-opd@sha256:<64 hex> team/qwen3-8b-opd:paper
    """,
)
@click.argument("ref", type=REF)
@click.argument("new", nargs=-1, required=True)
@click.pass_obj
def command(output: Output, ref: Ref, new: tuple[str, ...]) -> None:
    """Give an artifact more names.

    REF keeps its own. NEW is a tag of the same name, or a whole reference when it holds a '/' or a ':'.
    A tag that exists moves.
    """
    names = [Ref.parse(text) if "/" in text or ":" in text else ref.with_tag(text) for text in new]
    if any(name.digest for name in names):
        raise click.UsageError("a new name has no digest: leave @sha256:... out")
    from maskreg.registry.tags import tag

    from .places import local, note_catalog

    here = local()
    entries = [tag(here, ref, name) for name in names]
    note_catalog(output, here)
    if output.json:
        output.document([{"ref": str(e.ref), "digest": e.digest, "n": e.n} for e in entries])
        return
    for entry in entries:
        output.data(f"{entry.ref}@{entry.digest}")

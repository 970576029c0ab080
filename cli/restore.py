"""``maskreg restore``: bring a removed name back."""

from __future__ import annotations

import click

from maskreg.ref import Ref

from .command import Command
from .output import Output
from .values import REF


@click.command(cls=Command, example="maskreg restore qwen3-8b-opd:old")
@click.argument("ref", type=REF)
@click.pass_obj
def command(output: Output, ref: Ref) -> None:
    """Bring a removed tag back as it was."""
    from maskreg.registry.tags import restore

    from .places import local, note_catalog

    here = local()
    entry = restore(here, ref)
    note_catalog(output, here)
    if output.json:
        output.document({"ref": str(entry.ref), "digest": entry.digest, "n": entry.n})
    else:
        output.data(f"{entry.ref}@{entry.digest}")

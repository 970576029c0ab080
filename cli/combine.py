"""``maskreg combine``: a new mask of several masks."""

from __future__ import annotations

from typing import Any

import click

from maskreg.ref import Ref

from .command import Command, workspace
from .output import Output
from .values import FORCE, NAME, POSITIVE, REF


@click.command(
    cls=Command,
    example="""
    maskreg combine qwen3-8b-opd qwen3-8b-rlvr --how and --name qwen3-8b-shared
    maskreg combine qwen3-8b-opd qwen3-8b-rlvr --how minus --name qwen3-8b-opd-only
    maskreg combine seed-1 seed-2 seed-3 --at-least 2 --name consensus:v1
    """,
)
@click.argument("refs", type=REF, nargs=-1, required=True, metavar="REF REF...")
@click.option(
    "--how",
    type=click.Choice(["and", "or", "minus", "xor"]),
    help="and: coordinates in all masks; or: in any; minus: in the first alone; xor: in exactly one of two.",
)
@click.option("--at-least", type=POSITIVE, metavar="K", help="Coordinates in at least K of the masks.")
@click.option("--name", type=NAME, required=True, metavar="NAME[:TAG]", help="Name of the result.")
@click.option("--description", default="", help="Free text, one paragraph.")
@click.option("--allow-different", is_flag=True, help="Allow masks of different rules.")
@FORCE
@click.pass_obj
def command(output: Output, /, refs: tuple[Ref, ...], how: str | None, at_least: int | None, **options: Any) -> None:
    """Combine masks of one source into a new mask.

    The masks must be in the local registry. The result is stored there under NAME, with the masks as its parents.
    """
    if (how is None) == (at_least is None):
        raise click.UsageError("choose how to combine the masks: --how and|or|minus|xor, or --at-least K")
    from maskreg.workspace.verbs.combine import combine

    from .summary import tell_stored

    with output.progress() as progress:
        stored = combine(
            refs, how=how or "", at_least=at_least or 0, **options, progress=progress, workspace=workspace(output)
        )
    tell_stored(output, stored)

"""``maskreg squash``: one artifact in place of a chain."""

from __future__ import annotations

from typing import Any

import click

from maskreg.ref import Ref

from .command import Command, workspace
from .output import Output
from .values import FORCE, NAME, REF


@click.command(
    cls=Command,
    example="""
    maskreg squash qwen3-8b-run --name qwen3-8b-run:from-base
    maskreg squash qwen3-8b-run --since qwen3-8b-run:step-100 --name qwen3-8b-run:step-100-to-200
    """,
)
@click.argument("ref", type=REF, metavar="REF")
@click.option("--name", type=NAME, required=True, metavar="NAME[:TAG]", help="Name of the result.")
@click.option("--since", type=REF, metavar="REF", help="Squash only the links above this one.")
@click.option("--source", metavar="CKPT", help="Checkpoint that the first link applies to: file, directory or hub id.")
@click.option("--reversible", is_flag=True, help="Keep the source's values too.")
@click.option("--description", default="", help="Free text, one paragraph.")
@click.option("--download", is_flag=True, help="Download the checkpoint if it is not cached.")
@FORCE
@click.pass_obj
def command(output: Output, /, ref: Ref, **options: Any) -> None:
    """Squash the chain of links that ends in REF into one artifact.

    The result is what extracting the two ends of the chain gives. Under another tag of the chain's name, readers that
    are far behind take it in place of the links. The links stay.
    """
    from maskreg.workspace.verbs.squash import squash

    from .summary import tell_stored

    with output.progress() as progress:
        stored = squash(ref, **options, progress=progress, workspace=workspace(output))
    tell_stored(output, stored)

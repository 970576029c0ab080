"""``maskreg baseline``, ``combine`` and ``squash``: new artifacts of stored ones."""

from __future__ import annotations

from typing import Any

import click

from maskreg.ref import Ref
from maskreg.workspace import verbs

from .command import Command, workspace
from .output import Output
from .values import FORCE, NAME, NUMBER, POSITIVE, REF, SEED


@click.command(
    cls=Command,
    example="""
    maskreg baseline qwen3-8b-opd --kind random-per-tensor
    maskreg baseline qwen3-8b-opd --kind rounding-null --seed 1 --source ./Qwen3-8B --name qwen3-8b-null:s1
    maskreg baseline qwen3-8b-opd --kind subset --density 0.1
    """,
)
@click.argument("ref", type=REF)
@click.option("--kind", required=True, help="Kind of baseline, from the list above.")
@click.option("--seed", type=SEED, help="Seed of the draw [0].")
@click.option("--source", metavar="CKPT", help="Source checkpoint of the mask: file, directory or hub id.")
@click.option("--density", type=NUMBER, help="For subset: density of the result.")
@click.option("--rank", type=POSITIVE, help="For principal, safe: rank [a tenth of the shorter side].")
@click.option("--alpha", type=NUMBER, help="For safe: share of a matrix that is principal, and that is small [0.5].")
@click.option("--name", type=NAME, metavar="NAME[:TAG]", help="Name of the baseline [<name>-<kind>-<parameters>].")
@click.option("--download", is_flag=True, help="Download the source if it is not cached.")
@FORCE
@click.pass_obj
def baseline(output: Output, /, ref: Ref, kind: str, **options: Any) -> None:
    """Make a baseline of a mask and store it.

    \b
    random-global      same count, drawn from the whole model
    random-per-tensor  same count in each tensor
    exponent-matched   same count in each tensor and source exponent
    rounding-null      what bf16 rounding alone makes of noise of one size
    off-grid-null      the same where training did not start on the bf16 grid
    low-magnitude      the smallest weights of each tensor
    principal          the largest entries of each matrix's low-rank part
    safe               coordinates that are not principal, or are small
    subset             a random part of the mask, at --density
    complement         every coordinate outside the mask

    Kinds from exponent-matched to safe read the source's weights. Without --source, the checkpoint is looked up where
    this machine has seen it, then in the hub cache.
    """  # noqa: D301
    from .summary import tell_stored

    with output.progress() as progress:
        stored = verbs.baseline.baseline(ref, kind, **options, progress=progress, workspace=workspace(output))
    tell_stored(output, stored)


_HOW = click.Choice(["and", "or", "minus", "xor"])


@click.command(
    cls=Command,
    example="""
    maskreg combine qwen3-8b-opd qwen3-8b-rlvr --how and --name qwen3-8b-shared
    maskreg combine qwen3-8b-opd qwen3-8b-rlvr --how minus --name qwen3-8b-opd-only
    maskreg combine seed-1 seed-2 seed-3 --at-least 2 --name consensus:v1
    """,
)
@click.argument("refs", type=REF, nargs=-1, required=True, metavar="REF REF...")
@click.option("--how", type=_HOW, help="Coordinates in all masks, in any, in the first alone, or in one of two.")
@click.option("--at-least", type=POSITIVE, metavar="K", help="Coordinates in at least K of the masks.")
@click.option("--name", type=NAME, required=True, metavar="NAME[:TAG]", help="Name of the result.")
@click.option("--description", default="", help="Free text, one paragraph.")
@click.option("--allow-different", is_flag=True, help="Allow masks of different rules.")
@FORCE
@click.pass_obj
def combine(output: Output, /, refs: tuple[Ref, ...], how: str | None, at_least: int | None, **options: Any) -> None:
    """Combine masks of one source into a new mask.

    The masks must be in the local registry. The result is stored there under NAME, with the masks as its parents.
    """
    if (how is None) == (at_least is None):
        raise click.UsageError("choose how to combine the masks: --how and|or|minus|xor, or --at-least K")

    from .summary import tell_stored

    with output.progress() as progress:
        stored = verbs.combine.combine(
            refs, how=how or "", at_least=at_least or 0, **options, progress=progress, workspace=workspace(output)
        )
    tell_stored(output, stored)


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
def squash(output: Output, /, ref: Ref, **options: Any) -> None:
    """Squash the chain of links that ends in REF into one artifact.

    The result is what extracting the two ends of the chain gives. Under another tag of the chain's name, readers that
    are far behind take it in place of the links. The links stay.
    """
    from .summary import tell_stored

    with output.progress() as progress:
        stored = verbs.squash.squash(ref, **options, progress=progress, workspace=workspace(output))
    tell_stored(output, stored)

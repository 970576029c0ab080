"""``maskreg baseline``: a control mask, to compare a mask with or to retrain in its place."""

from __future__ import annotations

from typing import Any

import click

from maskreg.ref import Ref

from .command import Command, engine_options, workspace
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
@click.option(
    "--alpha", type=NUMBER, help="For safe: share of each matrix that counts as principal, and as small [0.5]."
)
@click.option(
    "--name",
    type=NAME,
    metavar="NAME[:TAG]",
    help="Name of the baseline [<name>-<kind>, then parameters and -s<seed>].",
)
@click.option("--download", is_flag=True, help="Download the source if it is not cached.")
@FORCE
@engine_options
@click.pass_obj
def command(output: Output, /, ref: Ref, kind: str, **options: Any) -> None:
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
    from maskreg.workspace.verbs.baseline import baseline

    from .summary import tell_stored

    with output.progress() as progress:
        stored = baseline(ref, kind, **options, progress=progress, workspace=workspace(output))
    tell_stored(output, stored)

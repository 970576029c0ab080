"""``maskreg baseline``: a mask of another making, to compare a mask with or to retrain in its place."""

from __future__ import annotations

import click

from maskreg.ref import Ref

from .command import Command
from .output import Output
from .values import NAME, REF


@click.command(
    cls=Command,
    example="""
    maskreg baseline qwen3-8b-opd --kind random-per-tensor
    maskreg baseline qwen3-8b-opd --kind rounding-null --seed 1 --source ./Qwen3-8B --name qwen3-8b-null:s1
    maskreg baseline qwen3-8b-opd --kind subset --density 0.1
    """,
)
@click.argument("ref", type=REF)
@click.option("--kind", required=True, help="Such as random-global; another word lists them all.")
@click.option("--seed", type=int, help="Other seeds give other draws; 0 when left out.")
@click.option("--source", metavar="CKPT", help="The mask's source: file, directory or hub id.")
@click.option("--density", type=float, help="For subset: share of all coordinates that are left.")
@click.option("--rank", type=int, help="For principal, safe: rank; a tenth of a matrix's shorter side when left out.")
@click.option("--alpha", type=float, help="For safe: share of each matrix that is principal, and that is small; 0.5.")
@click.option(
    "--name",
    "new",
    type=NAME,
    metavar="NAME[:TAG]",
    help="Its name; <name>-<kind>, then the parameters and -s<seed>, when left out.",
)
@click.option("--download", is_flag=True, help="Fetch the source from the hub when it is not in the cache.")
@click.pass_obj
def command(
    output: Output,
    ref: Ref,
    kind: str,
    seed: int | None,
    source: str | None,
    density: float | None,
    rank: int | None,
    alpha: float | None,
    new: Ref | None,
    download: bool,
) -> None:
    """Make a baseline of a mask and store it.

    \b
    random-global      as many coordinates, anywhere in the model
    random-per-tensor  as many in each tensor
    exponent-matched   as many in each tensor of each source exponent
    rounding-null      as bf16 rounding alone lets noise of one size move them
    low-magnitude      the smallest weights of each tensor
    principal          the largest of each matrix's part of low rank
    safe               what is not principal, or is small
    subset             some of the mask's own, down to --density
    complement         all but the mask's

    Kinds from exponent-matched to safe look at the source's weights; without --source it is looked for where this
    machine has seen it, then in the hub cache.
    """  # noqa: D301
    from maskreg.workspace.baseline import baseline

    from .session import workspace
    from .summary import summary

    with output.progress() as progress:
        stored = baseline(
            ref,
            kind,
            new,
            seed=seed,
            density=density,
            rank=rank,
            alpha=alpha,
            source=source,
            download=download,
            progress=progress,
            workspace=workspace(output),
        )
    if output.json:
        output.document(stored.to_json())
    else:
        output.data(summary(stored.ref, stored.digest, stored.artifact.manifest, stored.card, notes=stored.notes))

"""``maskreg baseline``: a mask of another making, to compare a mask with or to retrain in its place."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from maskreg.ref import Card, Ref

from .command import Command, again
from .output import Output
from .values import NAME, REF

if TYPE_CHECKING:
    from pathlib import Path

    from maskreg.artifact.reader import Artifact
    from maskreg.checkpoint.base import Checkpoint
    from maskreg.flow.baseline.build import Made
    from maskreg.mask.baseline import BaselineSpec
    from maskreg.registry import Registry


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
    from maskreg.mask.baseline import BaselineSpec
    from maskreg.workspace.description import describe

    from .naming import publish
    from .places import local, note_catalog, remember
    from .summary import summary

    spec = BaselineSpec.of(kind, seed=seed, density=density, rank=rank, alpha=alpha)
    here = local()
    found = here.resolve(ref)
    artifact = here.artifact(found.digest)
    called = new or _default_name(ref, spec)
    head = here.head(called)
    made, used = _made(output, here, artifact, spec, source, download)
    family = found.entry.card.family if found.entry else ""
    card = head.card if head is not None and head.digest == made.digest else Card(family, spec.kind.name).checked()
    was = publish(output, here, called, made.digest, card, head)
    manifest = here.artifact(made.digest).manifest
    if used is not None:
        remember(here, manifest.source.root, used)
    note_catalog(output, here)
    if output.json:
        output.document({**describe(called, made.digest, manifest, card), "was": was, "notes": list(made.notes)})
    else:
        output.data(summary(called, made.digest, manifest, card, notes=made.notes))


def _default_name(ref: Ref, spec: BaselineSpec) -> Ref:
    given = {"d": spec.density, "r": spec.rank, "a": spec.alpha, "s": spec.seed}
    ending = "".join(f"-{letter}{value}" for letter, value in given.items() if value is not None)
    return Ref.parse(f"{ref.project}/{ref.name}-{spec.kind.name}{ending}:{ref.tag}")


def _made(
    output: Output,
    here: Registry,
    artifact: Artifact,
    spec: BaselineSpec,
    source: str | None,
    download: bool,
) -> tuple[Made, Path | None]:
    from maskreg.checkpoint import open_checkpoint
    from maskreg.flow.baseline.build import make_baseline

    root = here.root
    assert root is not None  # the local registry is a directory
    with output.progress() as progress:

        def run(checkpoint: Checkpoint | None) -> Made:
            return make_baseline(artifact, spec, root, checkpoint, progress=progress)

        if not spec.kind.source:
            if source is not None:
                output.note(f"note: --source was not used: {spec.kind.name} does not look at weights")
            return run(None), None
        if source is None:
            from .sources import apply_to_first

            return apply_to_first(artifact.manifest.source, here.catalog, run, download=download, again=again())
        with closing(open_checkpoint(source, download=download)) as opened:
            return run(opened), opened.path

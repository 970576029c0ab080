"""``maskreg analyze``: the geometry of an update, beside what rounding alone would give."""

from __future__ import annotations

from typing import Any

import click

from maskreg.ref import Ref, is_pattern
from maskreg.workspace import verbs

from .command import Command, workspace
from .output import Output
from .table import GROUPS
from .values import FORCE, NAME, PAPER, POSITIVE, SEED, explanation, selecting

_SHARED = ("metrics", "presets", "ranks", "roles", "layers", "exact_up_to", "seed", "device", "download")
METRICS = ("sparsity", "norm", "concentration", "rank", "angles", "shift", "projection", "coverage")
"""Groups of figures: :data:`maskreg.analysis.matrix.METRICS`, known without importing them."""


@click.command(
    cls=Command,
    example="""
    maskreg analyze qwen3-8b-opd
    maskreg analyze qwen3-8b-opd --source ./Qwen3-8B --target ./fp32-masters --device cuda --by layer
    maskreg analyze --trajectory ./Qwen3-8B 's3://team/out/step-*' --json
    maskreg analyze qwen3-8b-opd --paper dssu --paper geo
    maskreg analyze --explain stable_rank
    """,
)
@click.argument("operands", nargs=-1, metavar="[REF | SOURCE CHECKPOINT...]")
@click.option("--source", metavar="CKPT", help="Source checkpoint of the artifact [where this machine has seen it].")
@click.option("--target", metavar="CKPT", help="Target checkpoint [made from the source and the delta].")
@click.option("--name", type=NAME, metavar="NAME[:TAG]", help="Name of the result [<name>-analysis].")
@click.option("--trajectory", is_flag=True, help="Measure one run over its checkpoints, or a pattern.")
@click.option("--by", type=click.Choice(GROUPS), help="Show figures per group too.")
@click.option("-v", "--verbose", is_flag=True, help="Print every figure, and fold nothing.")
@click.option("--metrics", type=click.Choice(METRICS), multiple=True, help="Only this group of figures (repeatable).")
@click.option("--preset", "presets", multiple=True, help="Definition of coverage: dssu, geo or small (repeatable).")
@click.option("--rank", "ranks", type=POSITIVE, multiple=True, help="Number of principal angles (repeatable).")
@selecting
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the rounding null.")
@click.option("--exact-up-to", type=POSITIVE, default=4096, help="Largest shorter side with an exact SVD [4096].")
@click.option("--device", default="cpu", show_default=True, help="Device to decompose matrices on: cpu or cuda.")
@click.option("--download", is_flag=True, help="Download hub checkpoints that are not cached.")
@FORCE
@PAPER
@click.option("--explain", metavar="FIGURE", help="Print the definition of a figure and exit.")
@click.pass_obj
def command(
    output: Output,
    /,
    operands: tuple[str, ...],
    trajectory: bool,
    by: str | None,
    verbose: bool,
    papers: tuple[str, ...],
    explain: str | None,
    **options: Any,
) -> None:
    """Measure the geometry of an update.

    Every figure stands beside its rounding null: what bf16 rounding alone makes of noise as strong as the update.
    The result is stored as an artifact that refers to REF. If REF is itself an analysis, it is shown. An interrupted
    analysis resumes where it stopped.
    """
    if explain is not None:
        explanation(output, explain, "analyze")
        return
    if trajectory:
        _refuse_unused()
        _trajectory(output, operands, verbose, by=by, **{name: options[name] for name in _SHARED})
        return
    if len(operands) != 1:
        raise click.UsageError("give one REF, or --trajectory with SOURCE and checkpoints")

    from .geometry import geometry, published

    ref = Ref.parse(operands[0])
    with output.progress() as progress:
        result = verbs.analyze.analyze(ref, **options, progress=progress, workspace=workspace(output))
    beside = {paper: result.beside(paper) for paper in papers}
    if output.json:
        tables = {paper: [table.to_json() for table in tables] for paper, tables in beside.items()}
        output.document(result.to_json() | ({"papers": tables} if papers else {}))
    elif papers:
        shown = [table for tables in beside.values() for table in tables]
        output.data(published(str(result.ref), shown, result.analysis["notes"]))
    else:
        output.data(geometry(str(result.ref), str(result.digest), result.analysis, by, verbose=verbose))


def _refuse_unused() -> None:
    """Refuse options that change nothing of a trajectory, instead of leaving them out without a word."""
    context = click.get_current_context()
    used = ("operands", "trajectory", "by", "verbose", "explain", *_SHARED)
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and parameter.expose_value and name not in used:
            raise click.UsageError(f"{parameter.opts[-1]} changes nothing of --trajectory: leave it out")


def _trajectory(output: Output, paths: tuple[str, ...], verbose: bool, **options: Any) -> None:
    if len(paths) < 3 and not any(map(is_pattern, paths[1:])):
        raise click.UsageError("--trajectory needs SOURCE and two checkpoints or more")

    from .geometry import trajectory as table

    source, *checkpoints = paths
    with output.progress() as progress:
        document = verbs.analyze.trajectory(
            source, checkpoints, **options, progress=progress, workspace=workspace(output)
        )
    if output.json:
        output.document(document)
    else:
        output.data(table(document, verbose=verbose))

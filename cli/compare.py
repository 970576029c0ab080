"""``maskreg compare``: what masks share, beside chance and rounding."""

from __future__ import annotations

from typing import Any

import click

from maskreg.ref import Ref
from maskreg.words import times
from maskreg.workspace import verbs

from .command import Command, workspace
from .output import Output
from .table import GROUPS
from .values import REFS, SHARE, explanation, selecting


@click.command(
    cls=Command,
    example="""
    maskreg compare qwen3-8b-opd qwen3-8b-rlvr
    maskreg compare qwen3-8b-opd qwen3-8b-rlvr --source ./Qwen3-8B --by role --record
    maskreg compare math-opd math-rlvr --updates --role ffn --layers 0-11
    maskreg compare 'team/qwen3-8b-opd:step-*' --json
    maskreg compare --explain headroom
    """,
)
@click.argument("refs", type=REFS, nargs=-1, metavar="A B [C]...")
@click.option("--source", metavar="CKPT", help="Source checkpoint of the masks: file, directory or hub id.")
@click.option("--download", is_flag=True, help="Download the source if it is not cached.")
@click.option("--require-source", is_flag=True, help="Fail if the source is not found, instead of leaving figures out.")
@click.option("--by", type=click.Choice(GROUPS), help="Show figures per group too.")
@selecting
@click.option("-v", "--verbose", is_flag=True, help="Print every null and figure, and fold nothing.")
@click.option("--stripes", is_flag=True, help="Count rows and columns that move as a whole.")
@click.option("--updates", is_flag=True, help="Measure the angle between updates, and their top MLP channels.")
@click.option("--allow-different", is_flag=True, help="Allow masks of different rules, tensors or sources.")
@click.option("--smallest-effect", type=SHARE, metavar="SHARE", help="Least headroom that matters to the verdict [1%].")
@click.option("--start", type=click.Choice(["yes", "no", "unknown"]), help="Whether A or B began at the source.")
@click.option("--record", is_flag=True, help="Record the lift in the catalog, as a measurement of A.")
@click.option("--exit-code", is_flag=True, help="Exit 0 if the verdict of every pair is more, otherwise 1.")
@click.option("--explain", metavar="FIGURE", help="Print the definition of a figure and exit.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    refs: tuple[Ref | str, ...],
    by: verbs.compare.Group | None,
    verbose: bool,
    record: bool,
    exit_code: bool,
    explain: str | None,
    **options: Any,
) -> None:
    """Measure the overlap of masks, beside chance and rounding.

    Any two updates share coordinates, because bf16 rounding lets small weights move first. Without --source, the
    checkpoint is looked up where this machine has seen it, then in the hub cache; if it is not found, figures that
    need it are left out. A pattern such as 'team/run:step-*' stands for all tags that match it. --record also records
    the overlap with the mask that the source's rlvr-reference tag points to (name it last), and the overlap of two
    seeds of one family and method.

    --start says whether training of A or of B started at the source, bit for bit; by default what the cards say (--meta
    start=yes). --exit-code exits 1 also where the verdict cannot be told.
    """
    output = ctx.ensure_object(Output)
    if explain is not None:
        explanation(output, explain, "compare")
        return
    if len(refs) < 2 and not any(isinstance(ref, str) for ref in refs):
        raise click.UsageError("name at least two masks")
    from maskreg.workspace.storing import note_catalog

    from .comparison import text

    space = workspace(output)
    with output.progress() as progress:
        given = {name: value for name, value in options.items() if value is not None}
        groups = None if output.json else (by,) if by else ()
        result = verbs.compare.compare(*refs, **given, by=by, groups=groups, progress=progress, workspace=space)
    try:
        if record:
            result = verbs.compare.keep(result, workspace=space)
    finally:
        # What was measured is not lost when it cannot be recorded.
        note_catalog(space, space.local)
        if not output.printed(result):
            output.data(text(result, by, verbose=verbose))
    if not output.json:
        for measurement in result.recorded:
            group = f", {measurement.by_group}" if measurement.by_group else ""
            output.note(
                f"recorded {measurement.metric} {times(measurement.value)} of {measurement.digest.short}{group}"
            )
        if not verbose:
            output.note("  more: add --verbose" + ("" if by else " or --by role|layer|module|tensor"))
    output.notes(result.notes)
    if exit_code and not all(outcome == "more" for outcome in result.outcomes):
        ctx.exit(1)

"""``maskreg survey``: what every two of hundreds of masks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maskreg.ref import Ref, printable
from maskreg.words import percent

from .command import Command, engine_options, workspace
from .output import Output
from .table import Row, folded, paragraph, table
from .values import REFS, selecting

if TYPE_CHECKING:
    from maskreg.workspace.verbs.survey import MaskSurvey


@click.command(
    cls=Command,
    example="""
    maskreg survey 'team/qwen3-8b-opd:step-*'
    maskreg survey 'team/qwen3-8b-opd:step-*' --source ./Qwen3-8B --json > survey.json
    maskreg survey 'math-opd:*' 'math-rlvr:*' --role ffn
    """,
)
@click.argument("refs", type=REFS, nargs=-1, metavar="A B [C]...")
@click.option("--source", metavar="CKPT", help="Source checkpoint of the masks: file, directory or hub id.")
@click.option("--download", is_flag=True, help="Download the source if it is not cached.")
@click.option("--require-source", is_flag=True, help="Fail if the source is not found, instead of leaving figures out.")
@selecting
@click.option("-v", "--verbose", is_flag=True, help="Print a line on every mask, however many.")
@click.option("--allow-different", is_flag=True, help="Allow masks of different rules, tensors or sources.")
@engine_options
@click.pass_context
def command(ctx: click.Context, /, refs: tuple[Ref | str, ...], verbose: bool, **options: Any) -> None:
    """Count what every two of many masks share.

    Two hundred masks have 20,000 pairs; comparing them all would take days where counting takes minutes. Every mask
    stands beside the one before it, the first, and the one that it is most like. There are no intervals and no
    answers: for these, compare the pairs that matter. --json has every pair.
    """
    output = ctx.ensure_object(Output)
    if len(refs) < 2 and not any(isinstance(ref, str) for ref in refs):
        raise click.UsageError("name at least two masks, or a pattern such as 'team/run:step-*'")
    from maskreg.workspace.verbs.survey import survey

    with output.progress() as progress:
        result = survey(*refs, **options, progress=progress, workspace=workspace(output))
    if not output.printed(result):
        output.data(text(result, verbose=verbose))


def text(result: MaskSurvey, *, verbose: bool = False) -> str:
    """A survey as text: a sentence, and a line on every mask."""
    survey = result.survey
    lines = paragraph(survey.sentence)
    named = {name: number for number, name in enumerate(survey.names)}
    before = [0, *range(len(named) - 1)]
    kept, left_out = folded(
        named, lambda number: _known(survey.headrooms[number, before[number]]),
        things="masks", by="headroom with the mask before", whole=verbose,
    )  # fmt: skip
    rows: list[Row] = [("mask", "most like", "moved", "of it in the next", "with the one before", "with the first")]
    for name, number in kept.items():
        after = min(number + 1, len(named) - 1)
        rows.append(
            (
                name,
                survey.names[survey.nearest[number]],
                percent(survey.sizes[number] / survey.numel),
                percent(_known(survey.coverage[number, after])) if after > number else "",
                percent(_known(survey.headrooms[number, before[number]])) if number else "",
                percent(_known(survey.headrooms[number, 0])) if number else "",
            )
        )
    lines += [
        "",
        *table(rows, right=2),
        *left_out,
        "",
        *paragraph(f"with: headroom over {survey.null}."),
    ]
    lines += [line for note in survey.notes for line in paragraph(f"note: {note}")]
    return "\n".join(map(printable, lines))


def _known(value: float) -> float | None:
    return None if value != value else float(value)

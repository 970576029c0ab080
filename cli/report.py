"""``maskreg report``: a page that says whether a mask is more than rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from maskreg.document import parse_object
from maskreg.errors import stating
from maskreg.limits import LIMITS
from maskreg.ref import Ref
from maskreg.reports import FORMATS
from maskreg.workspace import verbs

from .command import Command, workspace
from .output import Output
from .table import paragraph
from .values import FILE, OUT, PAPER, REF, REFS, selecting


@click.command(
    cls=Command,
    example="""
    maskreg report qwen3-8b-opd -o report.html
    maskreg report qwen3-8b-opd --against qwen3-8b-rlvr --source ./Qwen3-8B -o report.html --plots figures
    maskreg report qwen3-8b-opd --figure density -o density.pdf
    maskreg report seed-1 --against seed-2 --against seed-3 --role qkvo --layers 13 -o layer-13.html
    """,
)
@click.argument("ref", type=REF)
@click.option("--against", type=REFS, multiple=True, metavar="REF", help="Masks to compare with (repeatable).")
@click.option("--source", metavar="CKPT", help="Source checkpoint of the masks: file, directory or hub id.")
@click.option("--analysis", type=REF, metavar="REF", help="Analysis of the update [<name>-analysis, if it exists].")
@click.option("--trajectory", type=FILE, metavar="FILE", help="Output of analyze --trajectory --json.")
@PAPER
@selecting
@click.option("-o", "--out", type=OUT, required=True, help="Page or figure to write; missing folders are made.")
@click.option("--figure", metavar="NAME", help="Write this figure of the page alone, such as density.")
@click.option("--format", type=click.Choice(FORMATS), help="Of the figure [suffix of --out].")
@click.option("--plots", type=OUT, help="Folder for all figures as SVG, PNG, PDF, CSV and LaTeX.")
@click.option("--allow-different", is_flag=True, help="Allow masks of different rules or tensors.")
@click.option("--download", is_flag=True, help="Download the source if it is not cached.")
@click.option("--require-source", is_flag=True, help="Fail if the source is not found, instead of leaving figures out.")
@click.option("--force", is_flag=True, help="Replace an existing page, and figures.")
@click.pass_obj
def command(output: Output, /, ref: Ref, trajectory: Path | None, **options: Any) -> None:
    """Write one self-contained page about a mask, or one of its figures.

    The page shows where the mask lies by layer, module and magnitude, beside what rounding alone would move; its
    overlap with other masks, beside every null; and the geometry of the update, if it was analyzed. Without --source,
    the checkpoint is looked up where this machine has seen it, then in the hub cache; if it is not found, the page
    leaves out what needs it. Of three masks or more, it maps in how many of them the coordinates of a matrix are,
    where --role and --layers leave at most four.
    """
    from maskreg.reports.theme import require_libraries

    require_libraries()
    with output.progress() as progress:
        result = verbs.report.report(
            ref, trajectory=_trajectory(trajectory), **options, progress=progress, workspace=workspace(output)
        )
    output.answer(result)
    output.note("\n".join(paragraph(result.sentence)))
    if not options["against"]:
        output.note("  more: add --against REF")
    for path in (result.path, *result.plots):
        output.value(str(path))


def _trajectory(file: Path | None) -> dict[str, Any] | None:
    if file is None:
        return None
    max_bytes = LIMITS.small_file_bytes
    with file.open("rb") as opened:
        data = opened.read(max_bytes + 1)
    with stating(no_trajectory=True):
        return parse_object(data, str(file), max_bytes=max_bytes, max_depth=LIMITS.json_depth)

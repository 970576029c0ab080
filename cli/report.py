"""``maskreg report``: a page that answers whether a mask is more than rounding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

import maskreg
from maskreg.disk import replacing
from maskreg.errors import NotFoundError, UsageError
from maskreg.ref import Card, Ref

from .command import Command, again
from .output import Output
from .values import FILE, OUT, REF

if TYPE_CHECKING:
    from maskreg.checkpoint.base import Checkpoint
    from maskreg.registry import Registry
    from maskreg.report.findings import Findings, Named
    from maskreg.report.geometry import Geometry, Trajectory


@click.command(
    cls=Command,
    example="""
    maskreg report qwen3-8b-opd -o report.html
    maskreg report qwen3-8b-opd --against qwen3-8b-rlvr --source ./Qwen3-8B -o report.html --plots figures
    """,
)
@click.argument("ref", type=REF)
@click.option("--against", type=REF, multiple=True, metavar="REF", help="Another mask to compare with; repeatable.")
@click.option("--source", metavar="CKPT", help="The checkpoint that the masks were made from: file, directory, hub id.")
@click.option("--analysis", type=REF, metavar="REF", help="What analyze found; NAME-analysis, if there is one.")
@click.option("--trajectory", type=FILE, metavar="FILE", help="What analyze --trajectory --json wrote.")
@click.option("-o", "--out", type=OUT, required=True, help="The page to write.")
@click.option("--plots", type=OUT, help="A folder for every plot as SVG and PNG, light and dark.")
@click.option("--allow-different", is_flag=True, help="Compare masks of different rules or tensors on what they share.")
@click.option("--download", is_flag=True, help="Fetch the source from the hub when it is not in the cache.")
@click.option("--require-source", is_flag=True, help="Fail without the source, instead of leaving out what needs it.")
@click.option("--force", is_flag=True, help="Replace a page that exists.")
@click.pass_obj
def command(
    output: Output,
    ref: Ref,
    against: tuple[Ref, ...],
    source: str | None,
    analysis: Ref | None,
    trajectory: Path | None,
    out: Path,
    plots: Path | None,
    allow_different: bool,
    download: bool,
    require_source: bool,
    force: bool,
) -> None:
    """Write one self-contained page about a mask.

    Where it lies by layer, module and magnitude, beside what rounding alone would move; what it shares with other
    masks, beside every null; and the geometry of the update, when it was analyzed. Without --source the checkpoint is
    looked for where this machine has seen it, then in the hub cache; without any, the page leaves out what needs it.
    """
    from maskreg.report.theme import require_libraries

    require_libraries()
    from maskreg.report.findings import gather
    from maskreg.report.page import page, plots_of
    from maskreg.report.pictures import export
    from maskreg.report.words import answer

    from .places import local
    from .sources import run_with_source

    here = local()
    mask, *others = (_named(here, one) for one in (ref, *against))
    geometry, growth = _geometry(here, mask, ref, analysis), _trajectory(trajectory)

    with replacing(out, force=force) as file:
        with output.progress() as progress:

            def run(checkpoint: Checkpoint | None) -> Findings:
                return gather(mask, others, checkpoint, allow_different=allow_different, progress=progress)

            counted = run_with_source(
                mask.artifact.manifest.source,
                here.catalog,
                run,
                source=source,
                download=download,
                required=require_source,
                again=again(),
                note=lambda why: output.note(f"note: {why}; the page says nothing of rounding"),
            )
        found = replace(counted, geometry=geometry, trajectory=growth)
        file.write(page(found, maskreg.__version__).encode())
    drawn = export(list(plots_of(found).values()), plots) if plots else []
    mark, sentence = answer(found)
    if output.json:
        output.document(
            {
                "ref": str(ref),
                "digest": str(found.digest),
                "path": str(out),
                "plots": [str(path) for path in drawn],
                "answer": mark,
                "sentence": sentence,
                "against": [{"ref": other.name, **other.comparison.to_json()} for other in found.against],
            }
        )
        return
    output.note(sentence)
    for path in (out, *drawn):
        output.data(str(path))


def _named(here: Registry, ref: Ref) -> Named:
    from maskreg.report.findings import Named

    resolved = here.resolve(ref)
    card = resolved.entry.card if resolved.entry else Card()
    return Named(str(ref), here.artifact(resolved.digest), card)


def _geometry(here: Registry, mask: Named, ref: Ref, wanted: Ref | None) -> Geometry | None:
    from maskreg.artifact.analysis import read_analysis
    from maskreg.report.geometry import geometry_of

    called = wanted or replace(ref, name=f"{ref.name}-analysis", digest=None)
    try:
        found = here.artifact(here.resolve(called).digest)
    except NotFoundError:
        if wanted is not None:
            raise
        return None
    if found.manifest.parents != (str(mask.artifact.digest),) and wanted is None:
        # Of what the name pointed at before.
        return None
    if found.manifest.parents != (str(mask.artifact.digest),):
        raise UsageError(f"{called} is no analysis of {ref}", hint=f"maskreg analyze {ref} --source CHECKPOINT")
    return geometry_of(str(called), read_analysis(found))


def _trajectory(file: Path | None) -> Trajectory | None:
    if file is None:
        return None
    from maskreg.document import parse_object
    from maskreg.limits import LIMITS
    from maskreg.report.geometry import trajectory_of

    most = LIMITS.small_file_bytes
    with file.open("rb") as opened:
        data = opened.read(most + 1)
    return trajectory_of(parse_object(data, str(file), max_bytes=most, max_depth=LIMITS.json_depth))

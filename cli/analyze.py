"""``maskreg analyze``: the geometry of an update, beside what rounding alone would give."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from maskreg.errors import BadRefError
from maskreg.ref import Card, Ref
from maskreg.words import counted

from .command import Command
from .explanation import explanation
from .output import Output
from .values import NAME

if TYPE_CHECKING:
    from maskreg.analysis.matrix import AnalysisSpec
    from maskreg.artifact.reader import Artifact
    from maskreg.registry import Registry

_GROUPS = ("sparsity", "norm", "rank", "angles", "shift", "projection", "coverage")


@click.command(
    cls=Command,
    example="""
    maskreg analyze qwen3-8b-opd --source ./Qwen3-8B
    maskreg analyze qwen3-8b-opd --source ./Qwen3-8B --target ./fp32-masters --device cuda --by layer
    maskreg analyze qwen3-8b-opd-analysis --by tensor
    maskreg analyze --trajectory ./Qwen3-8B ./out/step-100 ./out/step-200 ./out/step-300
    maskreg analyze --explain stable_rank
    """,
)
@click.argument("what", nargs=-1, metavar="[REF | SOURCE CHECKPOINT...]")
@click.option("--source", help="The checkpoint that the artifact was made from.")
@click.option("--target", help="The other side; made from the source and the delta when left out.")
@click.option("--name", type=NAME, metavar="NAME[:TAG]", help="What to call the result; REF's name with -analysis.")
@click.option("--trajectory", is_flag=True, help="Follow one run over its checkpoints instead.")
@click.option("--by", type=click.Choice(["role", "layer", "tensor"]), default="role", show_default=True, help="Groups.")
@click.option("--metrics", type=click.Choice(_GROUPS), multiple=True, help="Only these figures; repeatable.")
@click.option("--preset", "presets", multiple=True, help="Definition of coverage: dssu, geo or small; repeatable.")
@click.option("--rank", "ranks", type=click.IntRange(min=1), multiple=True, help="Directions of angles; repeatable.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the rounding null.")
@click.option(
    "--exact-up-to", type=click.IntRange(min=1), default=4096, show_default=True, help="Smaller side of exact SVDs."
)
@click.option("--device", default="cpu", show_default=True, help="Where matrices are decomposed: cpu or cuda.")
@click.option("--download", is_flag=True, help="Fetch hub checkpoints that are not in the cache.")
@click.option("--explain", metavar="FIGURE", help="Only say how a figure is defined.")
@click.pass_obj
def command(
    output: Output,
    what: tuple[str, ...],
    source: str | None,
    target: str | None,
    name: Ref | None,
    trajectory: bool,
    by: str,
    metrics: tuple[str, ...],
    presets: tuple[str, ...],
    ranks: tuple[int, ...],
    seed: int,
    exact_up_to: int,
    device: str,
    download: bool,
    explain: str | None,
) -> None:
    """Measure the geometry of an update.

    Every figure stands beside its rounding null: what bf16 rounding alone makes of noise as strong as the update.
    The result is an artifact of its own that refers to REF; REF may also be such a result, which is then shown. An
    interrupted run goes on where it was.
    """
    if explain is not None:
        explanation(output, explain, "analyze")
        return
    if trajectory:
        _follow(output, what, exact_up_to, seed, device, download)
        return
    if len(what) != 1:
        raise click.UsageError("give one REF, or --trajectory with SOURCE CHECKPOINT...")
    from .places import local

    ref = _ref(what[0])
    here = local()
    artifact = here.artifact(here.resolve(ref).digest)
    output.ref = str(ref)
    if artifact.manifest.kind == "analysis":
        _show(output, ref, artifact, by)
        return
    if source is None:
        raise click.UsageError("give the checkpoint that the artifact was made from: --source CHECKPOINT")
    from maskreg.analysis.presets import PRESETS
    from maskreg.flow.geometry.analysis import RANKS, question

    ask = question(
        metrics=metrics or _GROUPS,
        presets=presets or tuple(PRESETS),
        ranks=ranks or RANKS,
        seed=seed,
        exact_up_to=exact_up_to,
    )
    called = name or replace(ref, name=f"{ref.name}-analysis", digest=None)
    made, was = _analyzed(output, here, artifact, called, ask, (source, target), device, download)
    _show(output, called, made, by, was)


def _analyzed(
    output: Output,
    here: Registry,
    artifact: Artifact,
    called: Ref,
    ask: AnalysisSpec,
    sides: tuple[str, str | None],
    device: str,
    download: bool,
) -> tuple[Artifact, str | None]:
    from maskreg.checkpoint import open_checkpoint
    from maskreg.flow.geometry.analysis import analyze, earlier, recipe_of

    from .naming import publish
    from .places import note_catalog, remember

    assert here.root is not None  # the local registry is a directory
    head = here.head(called)
    with ExitStack() as opened:
        source = opened.enter_context(closing(open_checkpoint(sides[0], download=download)))
        target = opened.enter_context(closing(open_checkpoint(sides[1], download=download))) if sides[1] else None
        recipe = recipe_of(artifact, target, ask, device)
        digest = earlier(here, called, artifact.digest, recipe) if head else None
        if digest is not None:
            output.note("note: this was analyzed before in the same way; shown is what was found then")
        else:
            with output.progress() as progress:
                made = analyze(artifact, source, target, here.root, ask, device=device, progress=progress)
            digest = made.digest
            if made.resumed:
                output.note(f"note: {counted(made.resumed, 'tensor')} finished by an earlier run")
            remember(here, artifact.manifest.source.root, source.path)
    card = head.card if head is not None and head.digest == digest else Card()
    was = publish(output, here, called, digest, card, head)
    note_catalog(output, here)
    return here.artifact(digest), was


def _show(output: Output, called: Ref, artifact: Artifact, by: str, was: str | None = None) -> None:
    from maskreg.artifact.analysis import read_analysis

    document = read_analysis(artifact)
    if output.json:
        output.document({"ref": str(called), "digest": str(artifact.digest), "was": was, "analysis": document})
        return
    from .geometry import geometry

    output.data(geometry(str(called), str(artifact.digest), document, by))


def _follow(output: Output, places: tuple[str, ...], exact_up_to: int, seed: int, device: str, download: bool) -> None:
    if len(places) < 3:
        raise click.UsageError("--trajectory needs SOURCE and two checkpoints or more")
    from maskreg.analysis.factors import Method
    from maskreg.checkpoint import open_checkpoint
    from maskreg.flow.geometry.trajectory import trajectory

    with ExitStack() as opened, output.progress() as progress:
        source, *run = [opened.enter_context(closing(open_checkpoint(p, download=download))) for p in places]
        method = Method(exact_up_to=exact_up_to, seed=seed)
        document = trajectory(source, run, method=method, device=device, progress=progress)
    if output.json:
        output.document(document)
        return
    from .geometry import steps

    output.data(steps(document))


def _ref(text: str) -> Ref:
    try:
        return Ref.parse(text)
    except BadRefError as error:
        raise click.BadParameter(f"{error}; {error.hint}", param_hint="REF") from error

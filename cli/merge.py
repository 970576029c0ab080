"""``maskreg merge``: one update, or one checkpoint, of several updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from maskreg.ref import Ref, printable
from maskreg.words import counted, percent
from maskreg.workspace import verbs

from .command import Command, workspace
from .jobs import do_there, on_server
from .output import Output
from .table import table
from .values import NAME, OUT, PAIR, REF, WEIGHT

if TYPE_CHECKING:
    from maskreg.flow.merge.checkpoint import RoleFigures


class _WithMethods(Command):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from maskreg.flow.merge.methods import METHODS

        super().format_options(ctx, formatter)
        with formatter.section("Methods, and what --set sets"):
            formatter.write_dl(
                [
                    (method.name, f"{method.summary} ({', '.join(method.keys)})" if method.keys else method.summary)
                    for method in METHODS.values()
                ]
            )


@click.command(
    cls=_WithMethods,
    example="""
    maskreg merge qwen3-8b-opd qwen3-8b-rlvr --method ties --name qwen3-8b-both
    maskreg merge qwen3-8b-opd qwen3-8b-rlvr --method linear --weight qwen3-8b-rlvr=0.5 -o ./Qwen3-8B-both
    maskreg merge qwen3-8b-opd --method restrict --set mask=qwen3-8b-rlvr --dry-run
    maskreg merge team/qwen3-8b-opd team/qwen3-8b-rlvr --method ties --on lab --name team/qwen3-8b-both
    """,
)
@click.argument("refs", type=REF, nargs=-1, required=True, metavar="REF...")
@click.option("--method", required=True, metavar="NAME", help="How to merge, from the list below.")
@click.option("--weight", "weights", type=WEIGHT, multiple=True, metavar="REF=W", help="Weight of a REF, else 1.")
@click.option("--set", "settings", type=PAIR, multiple=True, metavar="KEY=VALUE", help="Setting (repeatable).")
@click.option("--name", type=NAME, metavar="NAME[:TAG]", help="Name of the merged artifact.")
@click.option("--source", metavar="CKPT", help="Source checkpoint of the artifacts: file, directory or hub id.")
@click.option("-o", "--out", type=OUT, help="Write the merged checkpoint here.")
@click.option("--dry-run", is_flag=True, help="Say what merging would do, and write nothing.")
@click.option("--device", default="cpu", show_default=True, help="Device to decode on: cpu or cuda.")
@click.option("--description", default="", help="Free text, one paragraph.")
@click.option("--force", is_flag=True, help="Replace an earlier output; move a name that others can use.")
@click.option("--download", is_flag=True, help="Download the source if it is not cached.")
@click.option("--with-code", is_flag=True, help="Take along files that can run code, such as .py.")
@on_server
@click.pass_obj
def command(
    output: Output,
    /,
    refs: tuple[Ref, ...],
    weights: tuple[tuple[str, float], ...],
    settings: tuple[tuple[str, str], ...],
    remote: str | None,
    wait: bool,
    **options: Any,
) -> None:
    """Merge updates of one source, in fp32.

    With --name, the result is stored in the local registry, with REF... as its parents; with -o, it is written as a
    checkpoint. Without --source, the checkpoint is looked up where this machine has seen it, then in the hub cache.

    With --on, the server does it, with artifacts of its registry, and stores the result there.
    """
    if options["name"] is None and options["out"] is None and not options["dry_run"]:
        raise click.UsageError("choose what to make: --name for an artifact, -o for a checkpoint, or --dry-run")
    for pairs, option in ((weights, "--weight"), (settings, "--set")):
        keys = [key for key, _ in pairs]
        if repeated := [key for key in keys if keys.count(key) > 1]:
            raise click.UsageError(f"{option} names {repeated[0]} twice")
    if remote is not None:
        if options["name"] is None:
            raise click.UsageError("with --on, choose a --name for the artifact")
        if len(set(refs)) < len(refs):
            raise click.UsageError("an artifact is named twice")
        request: dict[str, Any] = {name: options.pop(name) for name in ("name", "method", "source", "description")}
        named = {ref: str(ref) for ref in refs}
        request["weights"] = verbs.merge.weights_in_order(dict(weights), named, Ref.parse) if weights else None
        chosen = dict(settings)
        request |= {"artifacts": refs, "mask": chosen.pop("mask", None), "settings": chosen}
        do_there(output, "merge", remote, request, {**options, "wait": wait})
        return

    with output.progress() as progress:
        given: Any = {"weights": dict(weights) or None, "settings": dict(settings)}
        merged = verbs.merge.merge(refs, **given, **options, progress=progress, workspace=workspace(output))
    _tell(output, merged)


def _tell(output: Output, merged: verbs.merge.Merged) -> None:
    output.answer(merged)
    output.notes(merged.notes)
    if merged.out is not None:
        output.note_files(merged.out, kept=merged.kept_files, skipped=merged.skipped_files)
    if not output.quiet:
        names = [printable(name) for name in merged.operands]
        roles = sorted(merged.report.roles.items(), key=lambda item: -item[1].numel)
        rows = [("role", "coordinates", *names, "any", "conflicts", "opposite signs", "result")]
        rows += [_row(role, figures) for role, figures in [*roles, ("all", merged.report.whole)]]
        title = f"{merged.method} of {counted(len(names), 'artifact')}: shares of the coordinates that moved"
        output.data("\n".join([title, "", *table(rows)]))
    if merged.artifact is not None:
        from .summary import tell_stored

        if not output.quiet:
            output.data("")
        tell_stored(output, merged.artifact)
    if merged.out is not None:
        output.value(str(merged.out))


def _row(role: str, figures: RoleFigures) -> tuple[str, ...]:
    counts = (*figures.before, figures.union, figures.conflicts, figures.disagreements, figures.after)
    return (role, f"{figures.numel:,}", *(percent(count / figures.numel if figures.numel else 0.0) for count in counts))

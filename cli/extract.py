"""``maskreg extract``: store what moved between two checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from maskreg.ref import is_pattern
from maskreg.words import counted, human_bytes, percent

from .command import Command, engine_options, workspace
from .jobs import on_server, refuse_here_only, tell_submitted
from .output import Output, told
from .table import Row, table
from .values import FORCE, NAME, PAIR

if TYPE_CHECKING:
    from maskreg.workspace.verbs.sweep import Sweep, Swept


@click.command(
    cls=Command,
    example="""
    maskreg extract ./Qwen3-8B ./Qwen3-8B-opd --name qwen3-8b-opd --family qwen3-8b --method opd
    maskreg extract Qwen/Qwen3-8B ./out/step-400 --name team/qwen3-8b-rlvr:v1 --method rlvr --reversible
    maskreg extract ./Qwen3-8B --each 'out/step-*' --name team/qwen3-8b-opd --method opd
    maskreg extract ./Qwen3-8B --each 's3://team/out/step-*' --onto previous --name team/qwen3-8b-opd-steps
    maskreg extract Qwen3-8B Qwen3-8B-opd --on lab --name team/qwen3-8b-opd --method opd
    """,
)
@click.argument("checkpoints", nargs=-1, metavar="SOURCE TARGET")
@click.option("--name", type=NAME, required=True, metavar="NAME[:TAG]", help="Name of the artifact.")
@click.option("--each", metavar="PATTERN", help="Every checkpoint of a run in place of TARGET; quote the pattern.")
@click.option(
    "--onto",
    type=click.Choice(["source", "previous"]),
    help="With --each: compare with SOURCE, or with the checkpoint before.  [default: source]",
)
@click.option("-n", "--dry-run", is_flag=True, help="With --each: only list the checkpoints, and which are done.")
@click.option("--family", default="", help="Model family, such as qwen3-8b.")
@click.option("--method", default="", help="Training method: opd, rlvr, sft or another word.")
@click.option("--license", default="", help="License as an SPDX identifier, such as apache-2.0.")
@click.option("--description", default="", help="Free text, one paragraph.")
@click.option("--meta", type=PAIR, multiple=True, help="Run metadata (repeatable).")
@click.option("--rule", default="exact", show_default=True, help="What counts as moved: exact, abs:TAU or rel:ETA.")
@click.option("--mask-only", is_flag=True, help="Store the mask without the delta.")
@click.option("--reversible", is_flag=True, help="Store the reverse delta too, for apply --revert.")
@click.option(
    "--allow-mismatch", is_flag=True, help="Store tensors whole that are missing on one side or differ in shape."
)
@click.option("--download", is_flag=True, help="Download hub checkpoints that are not cached.")
@click.option("--with-code", is_flag=True, help="Take along differing files that can run code, such as .py.")
@FORCE
@click.option("--device", default="cpu", show_default=True, help="Device to diff on: cpu or cuda.")
@on_server
@engine_options
@click.pass_obj
def command(
    output: Output,
    /,
    checkpoints: tuple[str, ...],
    meta: tuple[tuple[str, str], ...],
    remote: str | None,
    wait: bool,
    each: str | None,
    onto: str | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Diff two checkpoints and store what moved.

    SOURCE and TARGET are each a .safetensors file, a directory of shards, a hub id (org/name[@revision]), or what a run
    leaves behind: a distributed PyTorch checkpoint, the files of FSDP ranks, a .bin or .pt file, a LoRA adapter. The
    artifact is stored in the local registry under NAME, and its summary is printed. A NAME that was pulled or pushed,
    or set by another user, moves to another artifact when you confirm it on a terminal, or with --force; otherwise it
    is refused before anything is read. Nothing is lost: its history keeps the old one (maskreg log NAME).

    With --each, every checkpoint that PATTERN matches is a TARGET, in the order of the run, and gets a tag of its own:
    NAME:step-100. What was extracted before from the same files is not read again, so the same command goes on after
    an interruption and sweeps a run that grows. One that cannot be extracted does not end the others. With --onto
    previous, each is compared with the checkpoint before it, and SOURCE may be left out.

    With --on, the server does it, with its own checkpoints: SOURCE and TARGET are then names there, which
    `maskreg jobs sources` lists, and the artifact is stored there.
    """
    if options["mask_only"] and options["reversible"]:
        raise click.UsageError("--mask-only keeps no values, so it cannot be --reversible")
    if each is not None:
        if remote is not None:
            raise click.UsageError("--on does one pair of checkpoints; leave out --on, or --each")
        sweep_run(output, each, checkpoints, onto=onto or "source", dry_run=dry_run, meta=dict(meta), **options)
        return
    if onto is not None or dry_run:
        raise click.UsageError("--onto and --dry-run belong to --each PATTERN")
    source, target = pair_of(checkpoints)
    if remote is not None:
        refuse_here_only(meta=meta, device=options.pop("device") != "cpu")
        refuse_here_only(**{name: options.pop(name) for name in ("allow_mismatch", "download", "with_code", "force")})
        from maskreg.workspace.verbs import jobs

        space = workspace(output)
        job = jobs.extract(source, target, options.pop("name"), remote, **options, workspace=space)
        tell_submitted(output, space, job, wait=wait)
        return
    from maskreg.tensors.rules import parse_rule
    from maskreg.workspace.verbs.extract import extract

    from .summary import tell_stored

    parse_rule(options["rule"])
    output.note_slow_kernels()
    with output.progress() as progress:
        stored = extract(source, target, meta=dict(meta), **options, progress=progress, workspace=workspace(output))
    tell_stored(output, stored)


def pair_of(checkpoints: Sequence[str]) -> tuple[str, str]:
    """The source and the target of one extraction."""
    if len(checkpoints) < 2:
        raise click.UsageError(f"Missing argument '{('SOURCE', 'TARGET')[len(checkpoints)]}'.")
    if len(checkpoints) > 2:
        extra = " ".join(checkpoints[2:])
        raise click.UsageError(
            f"Got unexpected extra argument ({extra}); for every checkpoint of a run: --each PATTERN"
        )
    return checkpoints[0], checkpoints[1]


def sweep_run(output: Output, pattern: str, checkpoints: Sequence[str], *, onto: str, **options: Any) -> None:
    """Extract from every checkpoint that a pattern matches, and print a table."""
    from maskreg.workspace.verbs.sweep import sweep

    if len(checkpoints) > 1:
        raise click.UsageError("with --each there is a SOURCE and no TARGET; quote the pattern: --each 'out/step-*'")
    source = checkpoints[0] if checkpoints else None
    if source is not None and onto == "previous" and not is_pattern(pattern):
        # What a shell makes of a pattern of two checkpoints that was not quoted, where no SOURCE was meant.
        raise click.UsageError(
            f"--each {pattern} is one checkpoint, so none is before it, and {source} would be the SOURCE; "
            "quote the pattern: --each 'out/step-*'; for these two alone leave out --onto"
        )
    output.note_slow_kernels()
    with output.progress() as progress:
        options |= {"source": source, "onto": onto, "progress": progress, "workspace": workspace(output)}
        result = sweep(pattern, options.pop("name"), **options)
    _print(output, result)
    if result.failed:
        output.reported = output.json
        first = result.failed[0]
        assert first.error is not None
        others = f" ({counted(len(result.failed), 'checkpoint')} failed)" if len(result.failed) > 1 else ""
        first.error.message = f"{first.ref}: {first.error.message}{others}"
        first.error.args = (first.error.message,)
        raise first.error


def _print(output: Output, result: Sweep) -> None:
    if output.printed(result):
        return
    if output.quiet:
        for row in result.checkpoints:
            if row.digest is not None:
                output.data(str(row.ref.pinned(row.digest)))
        return
    if not result.checkpoints:
        output.note("there is one checkpoint, and nothing yet to compare it with")
        return
    titles: Row = ("name", "checkpoint", "onto", "", "moved", "of the FFN", "size")
    output.data("\n".join(table([titles, *map(_cells, result.checkpoints)], right=4)))
    # The first is the error of the command.
    for row in result.failed[1:]:
        assert row.error is not None
        output.note(told(f"{row.ref}: {row.error.message}", row.error))


def _cells(row: Swept) -> Row:
    size = "" if row.size is None else human_bytes(row.size)
    shares = ["" if share is None else percent(share) for share in (row.density, row.ffn_density)]
    return str(row.ref), row.checkpoint, row.onto, row.status, *shares, size

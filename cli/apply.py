"""``maskreg apply``: patch the source checkpoint into the target."""

from __future__ import annotations

import sys
from typing import Any

import click

from maskreg.ref import Ref
from maskreg.words import counted, human_bytes
from maskreg.workspace import verbs

from .command import Command, workspace
from .jobs import do_there, on_server
from .output import Output
from .values import OUT


@click.command(
    cls=Command,
    example="""
    maskreg pull qwen3-8b-opd | maskreg apply
    maskreg apply qwen3-8b-opd --source ./Qwen3-8B -o ./Qwen3-8B-opd
    maskreg list -q | head -1 | maskreg apply -
    maskreg apply qwen3-8b-opd --revert --source ./Qwen3-8B-opd -o ./Qwen3-8B
    maskreg apply team/qwen3-8b-opd --on lab --source Qwen3-8B
    """,
)
@click.argument("ref_text", metavar="[REF|-]", required=False, default="-")
@click.option("--source", metavar="CKPT", help="Checkpoint to patch: file, directory or hub id.")
@click.option("-o", "--out", type=OUT, help="Output path [./<name>]; missing folders are made.")
@click.option("--device", default="cpu", show_default=True, help="Device to decode on: cpu or cuda.")
@click.option("--revert", is_flag=True, help="Turn the target back into the source (needs a reversible artifact).")
@click.option("--force", is_flag=True, help="Replace an earlier output; other files stay.")
@click.option("--download", is_flag=True, help="Download the checkpoint if it is not cached.")
@click.option("--with-code", is_flag=True, help="Write the artifact's files that can run code, such as .py.")
@on_server
@click.pass_context
def command(ctx: click.Context, /, ref_text: str, revert: bool, remote: str | None, wait: bool, **options: Any) -> None:
    """Apply REF to its source checkpoint.

    Writes a new checkpoint and leaves the source as it is. Without REF, or with -, the artifact is read from stdin,
    as `maskreg pull` writes it. Without --source, the checkpoint is looked up where this machine has seen it, then in
    the hub cache.

    With --on, the server does it, with an artifact of its registry: --source and --out are then names there, which
    `maskreg jobs sources` lists, and no paths. Ctrl-C leaves the job; `maskreg jobs` watches or cancels it.
    """
    output = ctx.ensure_object(Output)
    if remote is not None:
        if ref_text == "-":
            raise click.UsageError("with --on, name the artifact as the server knows it")
        request = {"artifact": Ref.parse(ref_text), "source": options.pop("source"), "output": options.pop("out")}
        do_there(output, "apply", remote, {**request, "revert": revert}, {**options, "wait": wait})
        return
    if ref_text == "-" and sys.stdin.isatty():
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)

    from .pipe import named_or_piped

    space = workspace(output)
    with output.progress() as progress:
        artifact = named_or_piped(space, ref_text, progress)
        applied = verbs.apply.apply(artifact, revert=revert, **options, progress=progress, workspace=space)
    _tell(output, applied)


def _tell(output: Output, applied: verbs.apply.Applied) -> None:
    output.answer(applied)
    output.notes(applied.notes)
    output.note_files(applied.out, kept=applied.kept_files, skipped=applied.skipped_files)
    size = f"{counted(applied.tensors, 'tensor')}, {human_bytes(applied.bytes)}"
    output.note(f"patched {applied.source}: {size}, every tensor checked")
    output.value(str(applied.out))

"""``maskreg apply``: patch the source checkpoint into the target."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from maskreg.digest import Digest
from maskreg.errors import NotFoundError, PipeError
from maskreg.ref import Card, Ref
from maskreg.words import counted, human_bytes

from .command import Command, again, workspace
from .output import Output
from .values import OUT

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.progress import Progress
    from maskreg.workspace.apply import Applied
    from maskreg.workspace.workspace import Named, Workspace

    from .pipe import Record


@click.command(
    cls=Command,
    example="""
    maskreg pull qwen3-8b-opd | maskreg apply
    maskreg apply qwen3-8b-opd --source ./Qwen3-8B -o ./Qwen3-8B-opd
    maskreg list -q | head -1 | maskreg apply -
    maskreg apply qwen3-8b-opd --revert --source ./Qwen3-8B-opd -o ./Qwen3-8B
    """,
)
@click.argument("ref_text", metavar="[REF|-]", required=False, default="-")
@click.option("--source", metavar="CKPT", help="Checkpoint to patch: file, directory or hub id.")
@click.option("-o", "--out", type=OUT, help="Output path [./<name>].")
@click.option("--device", default="cpu", show_default=True, help="Device to decode on: cpu or cuda.")
@click.option("--revert", is_flag=True, help="Turn the target back into the source (needs a reversible artifact).")
@click.option("--force", is_flag=True, help="Replace an earlier output; other files stay.")
@click.option("--download", is_flag=True, help="Download the checkpoint if it is not cached.")
@click.option("--with-code", is_flag=True, help="Write the artifact's files that can run code, such as .py.")
@click.pass_context
def command(ctx: click.Context, /, ref_text: str, revert: bool, **options: Any) -> None:
    """Apply REF to its source checkpoint.

    Writes a new checkpoint and leaves the source as it is. Without REF, or with -, the artifact is read from stdin,
    as `maskreg pull` writes it. Without --source, the checkpoint is looked up where this machine has seen it, then in
    the hub cache.
    """
    output = ctx.ensure_object(Output)
    if ref_text == "-" and sys.stdin.isatty():
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)
    from maskreg.workspace.apply import apply

    space = workspace(output)
    with output.progress() as progress:
        artifact = _artifact(output, space, ref_text, progress)
        if ref_text == "-":
            # The piped input cannot be read again.
            space.command = again(str(artifact.ref), without=("-",))
        output.note_slow_kernels()
        applied = apply(artifact, revert=revert, **options, progress=progress, workspace=space)
    _tell(output, applied)


def _artifact(output: Output, workspace: Workspace, text: str, progress: Progress) -> Named:
    if text != "-":
        output.ref = text
        return workspace.find(text)
    from maskreg.workspace.workspace import Named

    from .pipe import MAX_BYTES, read

    # Read to the end before anything is touched: only the end record says that the upstream command succeeded.
    record = read(sys.stdin.buffer.read(MAX_BYTES + 1))
    if isinstance(record, Ref):
        output.ref = str(record)
        return workspace.find(record)
    output.ref = record.ref
    artifact = _recorded(workspace, record, progress)
    record.check(artifact.manifest)
    return Named(Ref.parse(record.ref), artifact, Card())


def _recorded(workspace: Workspace, record: Record, progress: Progress) -> Artifact:
    digest = Digest(record.digest)
    try:
        return workspace.local.artifact(digest)
    except NotFoundError:
        # A remote's name from the pipe may be looked up in this machine's settings; an address from it is never used.
        if record.remote not in workspace.settings.remotes:
            _refuse_another(workspace, record, digest)
            raise
    from maskreg.workspace.pull import pull

    pinned = replace(Ref.parse(record.ref), digest=digest)
    return pull(pinned, remote=record.remote, progress=progress, workspace=workspace)


def _refuse_another(workspace: Workspace, record: Record, digest: Digest) -> None:
    try:
        local = workspace.local.resolve(replace(Ref.parse(record.ref), digest=None)).digest
    except NotFoundError:
        return
    raise PipeError(
        f"the record says that {record.ref} is {digest.short}, and in the local registry it is {local.short}",
        hint=f"maskreg pull {record.ref} | maskreg apply",
    )


def _tell(output: Output, applied: Applied) -> None:
    if output.json:
        output.document(applied.to_json())
        return
    for note in applied.notes:
        output.note(f"note: {note}")
    if applied.skipped_files:
        output.note(f"not copied: {', '.join(applied.skipped_files)}")
    if applied.kept_files:
        output.note(f"kept in {applied.out}: {', '.join(applied.kept_files)}")
    size = f"{counted(applied.tensors, 'tensor')}, {human_bytes(applied.bytes)}"
    output.note(f"patched {applied.source}: {size}, every tensor checked")
    output.value(str(applied.out))

"""``maskreg apply``: patch the source checkpoint into the target."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from maskreg.digest import Digest
from maskreg.disk import occupied
from maskreg.errors import NotFoundError, OutputExistsError, PipeError
from maskreg.ref import Ref
from maskreg.words import counted

from .command import Command, again
from .output import Output, human_bytes
from .values import OUT

if TYPE_CHECKING:
    from maskreg.artifact.reader import Artifact
    from maskreg.checkpoint.base import Checkpoint
    from maskreg.flow.apply.on_disk import Applied
    from maskreg.progress import Progress
    from maskreg.registry import Registry
    from maskreg.settings import Settings

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
@click.option("-o", "--out", type=OUT, help="Where the result goes; ./<name> when left out.")
@click.option("--device", default="cpu", show_default=True, help="Where to decode: cpu or cuda.")
@click.option("--revert", is_flag=True, help="Turn the target back into the source.")
@click.option("--force", is_flag=True, help="Replace an output that exists.")
@click.option("--download", is_flag=True, help="Fetch the checkpoint from the hub when it is not in the cache.")
@click.pass_context
def command(
    ctx: click.Context,
    ref_text: str,
    source: str | None,
    out: Path | None,
    device: str,
    revert: bool,
    force: bool,
    download: bool,
) -> None:
    """Patch a checkpoint into the one that REF leads to.

    Without REF, or with -, what `maskreg pull` announces is read from stdin. Without --source the checkpoint is
    looked for where this machine has seen it, then in the hub cache.
    """
    output = ctx.ensure_object(Output)
    if ref_text == "-" and sys.stdin.isatty():
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)
    from .places import remember, settings

    chosen = settings()
    with output.progress() as progress:
        here, ref, artifact = _find(output, chosen, ref_text, progress)
        side = artifact.manifest.target if revert else artifact.manifest.source
        place = out or Path(ref.name)
        if occupied(place) and not force:
            raise OutputExistsError(f"{place} exists already", hint=f"{_again(ref, revert)} -o OTHER, or add --force")

        def run(checkpoint: Checkpoint) -> Applied:
            from maskreg.flow.apply.on_disk import apply

            part = "reverse" if revert else "delta"
            if part in artifact.manifest.parts:
                output.wait(artifact.codec(part).is_compiled(encode=False))
            return apply(artifact, checkpoint, place, revert=revert, device=device, force=force, progress=progress)

        if source is not None:
            from maskreg.checkpoint import open_checkpoint

            with closing(open_checkpoint(source, download=download)) as opened:
                done, used = run(opened), opened.path
        else:
            from .sources import apply_to_first

            # What came down the pipe is gone.
            line = again(str(ref), without=("-",)) if ref_text == "-" else again()
            done, used = apply_to_first(side, here.catalog, run, download=download, again=line)
    remember(here, side.root, used)
    _tell(output, ref, artifact.digest, used, done)


def _find(output: Output, chosen: Settings, text: str, progress: Progress) -> tuple[Registry, Ref, Artifact]:
    from .places import local

    if text != "-":
        return _named(output, local(chosen), Ref.parse(text))
    from .pipe import MAX_BYTES, read

    # To its end, before anything is touched: only the end record says that all went well upstream.
    asked = read(sys.stdin.buffer.read(MAX_BYTES + 1))
    here = local(chosen)
    if isinstance(asked, Ref):
        return _named(output, here, asked)
    output.ref = asked.ref
    artifact = _recorded(chosen, here, asked, progress)
    asked.check(artifact.manifest)
    return here, Ref.parse(asked.ref), artifact


def _named(output: Output, here: Registry, ref: Ref) -> tuple[Registry, Ref, Artifact]:
    output.ref = str(ref)
    return here, ref, here.artifact(here.resolve(ref).digest)


def _recorded(chosen: Settings, here: Registry, asked: Record, progress: Progress) -> Artifact:
    digest = Digest(asked.digest)
    try:
        return here.artifact(digest)
    except NotFoundError:
        # A name out of the pipe may be looked up in this machine's settings; an address out of it never is.
        if asked.remote not in chosen.remotes:
            _refuse_other(here, asked, digest)
            raise
    from maskreg.registry.transfer import pull

    from .places import remote

    pinned = replace(Ref.parse(asked.ref), digest=digest)
    return pull(here, remote(chosen, asked.remote), pinned, progress=progress, jobs=chosen.jobs).artifact


def _refuse_other(here: Registry, asked: Record, digest: Digest) -> None:
    try:
        found = here.resolve(replace(Ref.parse(asked.ref), digest=None)).digest
    except NotFoundError:
        return
    raise PipeError(
        f"the record says that {asked.ref} is {digest.short}, and here it is {found.short}",
        hint=f"maskreg pull {asked.ref} | maskreg apply",
    )


def _again(ref: Ref, revert: bool) -> str:
    return f"maskreg apply {ref}" + (" --revert" if revert else "")


def _tell(output: Output, ref: Ref, digest: Digest, used: Path, done: Applied) -> None:
    if output.json:
        output.document(
            {
                "ref": str(ref),
                "digest": str(digest),
                "source": str(used),
                "out": str(done.out),
                "tensors": done.tensors,
                "bytes": done.bytes,
                "skipped_files": list(done.skipped_files),
                "notes": list(done.notes),
            }
        )
        return
    for note in done.notes:
        output.note(f"note: {note}")
    if done.skipped_files:
        output.note(f"not copied: {', '.join(done.skipped_files)}")
    output.note(f"patched {used}: {counted(done.tensors, 'tensor')}, {human_bytes(done.bytes)}, every tensor checked")
    output.data(str(done.out))

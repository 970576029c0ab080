"""``maskreg pull``: bring artifacts into the local registry, and describe them to a pipe."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING, Any

import click

from maskreg.digest import Digest
from maskreg.ref import Ref, ShortDigest
from maskreg.words import counted, human_bytes

from .command import Command, workspace
from .exits import failure
from .output import Output
from .values import REF

if TYPE_CHECKING:
    from maskreg.workspace.verbs.pull import Pulled


@click.command(
    cls=Command,
    example="""
    maskreg pull qwen3-8b-opd | maskreg apply
    maskreg pull team/qwen3-8b-opd:v3 team/qwen3-8b-rlvr --remote lab
    maskreg pull qwen3-8b-opd --only mask
    """,
)
@click.argument("refs", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("--remote", help="Remote to ask [the default remote].")
@click.option("--only", type=click.Choice(["mask", "delta", "reverse", "analysis"]), help="Bring only this part.")
@click.option("--allow-rollback", is_flag=True, help="Take the remote's tag as it is, even if its log went back.")
@click.pass_obj
def command(output: Output, /, refs: tuple[Ref | Digest | ShortDigest, ...], only: str | None, **options: Any) -> None:
    """Bring artifacts into the local registry, or find them there.

    When stdout is not a terminal, or with --json, prints one JSON record for each artifact and an end record that
    says whether all went well: the input of `maskreg apply`. Into a pipe it fetches only what `apply` reads:
    the delta without the mask, where there is a delta. A command that needs the mask later fetches it.
    """
    piped = output.json or not sys.stdout.isatty()
    done = 0
    try:
        from maskreg.registry.pull import DEFAULT_PARTS
        from maskreg.workspace.verbs.pull import pull

        options["parts"] = (only,) if only else DEFAULT_PARTS
        options["to_apply"] = only is None and not output.json and _is_pipe()
        space = workspace(output)
        with output.progress() as progress:
            for ref in refs:
                pulled = pull(ref, **options, progress=progress, workspace=space)
                if pulled.note and (pulled.remote or space.settings.offline):
                    output.note(f"note: {pulled.note}")
                _print(output, pulled, piped)
                done += 1
    except BrokenPipeError:
        raise
    except BaseException as error:
        if piped:
            # Otherwise the reader of the pipe could not tell a failure from the end.
            output.reported = True
            from .pipe import end

            output.record(end(done, failure(error).to_json()))
        raise
    if piped:
        from .pipe import end

        output.record(end(done))


def _is_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:  # not a file
        return False


def _print(output: Output, pulled: Pulled, piped: bool) -> None:
    manifest = pulled.artifact.manifest
    if output.quiet and not piped:
        output.data(str(pulled.ref) if pulled.ref and pulled.ref.digest else f"{pulled.ref}@{pulled.digest}")
        return
    if piped:
        from .pipe import record

        assert pulled.ref is not None  # pulled by name
        output.record(record(pulled.ref, pulled.digest, manifest, path=str(pulled.path), remote=pulled.remote))
        return
    fetched = f"{counted(pulled.fetched_objects, 'object')}, {human_bytes(pulled.fetched_bytes)} fetched"
    output.data(f"{pulled.ref}  {pulled.digest.short}  {manifest.kind}  {human_bytes(manifest.size)}")
    output.data(f"  {fetched}, {human_bytes(pulled.reused_bytes)} in the local registry already")
    output.data(f"  {pulled.path}")

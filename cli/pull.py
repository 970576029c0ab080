"""``maskreg pull``: bring artifacts into the local registry, and announce them to a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from maskreg.ref import Ref
from maskreg.words import counted

from .command import Command
from .exits import failure
from .output import Output, human_bytes
from .values import REF

if TYPE_CHECKING:
    from maskreg.registry import Registry
    from maskreg.registry.transfer import Pulled
    from maskreg.settings import Settings


@click.command(
    cls=Command,
    example="""
    maskreg pull qwen3-8b-opd | maskreg apply
    maskreg pull team/qwen3-8b-opd:v3 team/qwen3-8b-rlvr --remote lab
    maskreg pull qwen3-8b-opd --only mask
    """,
)
@click.argument("refs", nargs=-1, required=True, type=REF, metavar="REF...")
@click.option("--remote", "remote_name", help="Remote to ask; the default remote when left out.")
@click.option("--only", type=click.Choice(["mask", "delta", "reverse", "analysis"]), help="Bring one part only.")
@click.pass_obj
def command(output: Output, refs: tuple[Ref, ...], remote_name: str | None, only: str | None) -> None:
    """Bring artifacts into the local registry, or find them there.

    When stdout is not a terminal (or with --json) one JSON record per artifact is written, then an end record
    that says how it went: the way to hand them to `maskreg apply`.
    """
    piped = output.json or not sys.stdout.isatty()
    done = 0
    try:
        from maskreg.registry.transfer import DEFAULT_PARTS, pull

        from .places import local, settings

        chosen = settings()
        here, there = local(), _remote(chosen, remote_name)
        with output.progress() as progress:
            for ref in refs:
                output.ref = str(ref)
                parts = (only,) if only else DEFAULT_PARTS
                pulled = pull(here, there, ref, parts=parts, progress=progress, jobs=chosen.jobs)
                _announce(output, pulled, there.name if there else "", piped, chosen.offline)
                done += 1
    except BrokenPipeError:
        raise
    except BaseException as error:
        if piped:
            # The reader has to learn that there will be no more, and why.
            output.reported = True
            from .pipe import end

            output.record(end(done, failure(error, output.ref).to_json()))
        raise
    if piped:
        from .pipe import end

        output.record(end(done))


def _remote(chosen: Settings, name: str | None) -> Registry | None:
    if name is None and (chosen.offline or not chosen.remotes):
        return None
    from .places import remote

    return remote(chosen, name)


def _announce(output: Output, pulled: Pulled, remote: str, piped: bool, offline: bool) -> None:
    resolved, manifest = pulled.resolved, pulled.artifact.manifest
    if pulled.note and (remote or offline):
        output.note(f"note: {pulled.note}")
    if piped:
        from .pipe import record

        line = record(resolved.ref, resolved.digest, manifest, path=str(pulled.path), remote=remote)
        output.record(line)
        return
    fetched = f"{counted(pulled.fetched_objects, 'object')}, {human_bytes(pulled.fetched_bytes)} fetched"
    output.data(f"{resolved.ref}  {resolved.digest.short}  {manifest.kind}  {human_bytes(manifest.size)}")
    output.data(f"  {fetched}, {human_bytes(pulled.reused_bytes)} here already")
    output.data(f"  {pulled.path}")

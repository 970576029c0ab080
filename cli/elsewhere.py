"""What ``--on SERVER`` does: a job is submitted there, and followed as if the work were done here."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from maskreg.words import counted, human_bytes

from .command import engine_given
from .output import Output

if TYPE_CHECKING:
    from maskreg.workspace.jobs import RemoteJob
    from maskreg.workspace.workspace import Workspace

ON = click.option("--on", "remote", metavar="SERVER", help="Do it on this server, with checkpoints that it offers.")
"""The option of every command that a server can do."""

WAIT = click.option(
    "--wait/--no-wait", default=True, help="With --on, follow the job to its end [default], or leave it."
)
"""The option that goes with it."""


def refuse_here_only(**options: object) -> None:
    """Refuse options that are about this machine, in a command that works on a server.

    Args:
        options: values by option, in Python's spelling; those that are set are refused.

    Raises:
        click.UsageError: one is set.
    """
    for name, value in {**options, "engine": engine_given()}.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} is about this machine; leave it out with --on")


def tell_submitted(output: Output, space: Workspace, job: RemoteJob, *, wait: bool) -> None:
    """Follow a job to its end, and print what it made; or print its id alone.

    Raises:
        MaskregError: why it failed.
    """
    if not wait:
        if output.json:
            output.document(job.to_json())
            return
        output.note(f"submitted to {job.remote}; follow it: maskreg jobs show {job.id} --wait{_on(job)}")
        output.value(job.id)
        return
    output.note(f"job {job.id} on {job.remote}: {job.kind}, {job.output}")
    tell_done(output, follow(output, space, job))


def follow(output: Output, space: Workspace, job: RemoteJob) -> RemoteJob:
    """The job at its end. Ctrl-C leaves it as it is, and says how to go on.

    Raises:
        MaskregError: why it failed.
    """
    from maskreg.workspace import jobs

    try:
        with output.progress() as progress:
            return jobs.wait(job.id, job.remote, progress=progress, workspace=space)
    except KeyboardInterrupt:
        output.note(f"job {job.id} goes on; follow it: maskreg jobs show {job.id} --wait{_on(job)}")
        output.note(f"  or stop it: maskreg jobs cancel {job.id}{_on(job)}")
        raise


def tell_done(output: Output, job: RemoteJob) -> None:
    """Print what a job made."""
    if output.json:
        output.document(job.to_json())
        return
    result = job.result or {}
    for note in result.get("notes", ()):
        output.note(f"note: {note}")
    if result.get("skipped_files"):
        output.note(f"not copied: {', '.join(map(str, result['skipped_files']))}")
    if "tensors" in result:
        size = f"{counted(int(result['tensors']), 'tensor')}, {human_bytes(int(result['bytes']))}"
        output.note(f"patched {result.get('source')} on {job.remote}: {size}, every tensor checked")
        if result.get("root"):
            output.note(f"root: {result['root']}")
    elif "digest" in result:
        output.note(f"stored on {job.remote}: {result['digest']}")
    output.value(job.output)


def _on(job: RemoteJob) -> str:
    return f" --on {shlex.quote(job.remote)}"

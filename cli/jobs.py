"""``maskreg jobs``: work that a server does."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from maskreg.words import counted, human_bytes, percent
from maskreg.workspace import verbs

from .command import Group, workspace
from .next_step import stated
from .output import Output
from .table import table
from .values import IntegerType, several

if TYPE_CHECKING:
    from maskreg.workspace.workspace import Workspace


STATES = ["queued", "running", "done", "failed", "canceled"]

_ON = click.option("--on", "remote", metavar="SERVER", help="Server, as a remote is called [default: the default one].")


@click.group(cls=Group, example="maskreg jobs list --on lab")
def command() -> None:
    """List, watch and stop jobs of a server."""


@command.command("list", example="maskreg jobs list --on lab --project team --state running --json")
@_ON
@click.option("--project", metavar="PROJECT", help="Jobs of this project only.")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="In this state only (repeatable).")
@click.option("--limit", type=IntegerType(1, 200), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_(output: Output, /, remote: str | None, project: str | None, states: tuple[str, ...], limit: int) -> None:
    """List the jobs of a server, the newest first."""
    entries = verbs.jobs.list(remote, project=project, states=states, limit=limit, workspace=workspace(output))
    if output.json:
        output.document([job.to_json() for job in entries])
    elif output.quiet:
        for job in entries:
            output.data(job.id)
    elif entries:
        rows = [("JOB", "STATE", "KIND", "OUTPUT", "BY", "SUBMITTED", "PROGRESS")]
        rows += [
            (job.id, job.state, job.kind, job.output, job.by, f"{job.created:%Y-%m-%d %H:%M}", _progress(job))
            for job in entries
        ]
        output.data("\n".join(table(rows, right=6)))
    else:
        output.note("no jobs")


@command.command(example="maskreg jobs show 4be0c1d2e3f40516 --on lab --wait")
@click.argument("id")
@_ON
@click.option("--wait", is_flag=True, help="Wait for its end; fails if the job does.")
@click.pass_obj
def show(output: Output, /, id: str, remote: str | None, wait: bool) -> None:
    """Show the job ID, or wait for its end."""
    space = workspace(output)
    job = verbs.jobs.show(id, remote, workspace=space)
    if wait:
        tell_done(output, wait_for(output, space, job))
        return
    output.answer(job)
    if output.quiet:
        output.data(job.id)
    else:
        _describe(output, job)


@command.command(example="maskreg jobs cancel 4be0c1d2e3f40516 --on lab")
@click.argument("id")
@_ON
@click.pass_obj
def cancel(output: Output, id: str, remote: str | None) -> None:
    """Stop the job ID: at once while it waits, within seconds when it runs. It leaves nothing."""
    job = verbs.jobs.cancel(id, remote, workspace=workspace(output))
    output.tell(job, f"canceled {job.id}" if job.state.is_final else f"{job.id} stops within seconds")


@command.command(example="maskreg jobs sources --on lab")
@_ON
@click.pass_obj
def sources(output: Output, remote: str | None) -> None:
    """List the checkpoints that a server offers to jobs."""
    names = verbs.jobs.sources(remote, workspace=workspace(output))
    output.answer(names)
    for name in names:
        output.data(name)


def _progress(job: verbs.jobs.RemoteJob) -> str:
    done, total = job.progress.done, job.progress.total
    return percent(min(1.0, done / total)) if job.state == "running" and total else ""


def _describe(output: Output, job: verbs.jobs.RemoteJob) -> None:
    facts = stated({**job.to_json(), **(job.result or {}), "error": (job.error or {}).get("title")}, job.fault)
    if progress := _progress(job):
        done, total = human_bytes(job.progress.done), human_bytes(job.progress.total)
        facts["progress"] = f"{job.progress.phase}: {done} of {total}, {progress}"
    rows = [(name.replace("_", " "), str(fact)) for name, fact in facts.items() if isinstance(fact, str | int) and fact]
    output.data("\n".join(table(rows, right=2)))


on_server = several(
    click.option("--on", "remote", metavar="SERVER", help="Do it on this server, with checkpoints that it offers."),
    click.option("--wait/--no-wait", default=True, help="With --on, wait for its end [default], or leave it."),
)
"""The options of every command that a server can do."""


def do_there(output: Output, kind: str, remote: str, request: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Have a server do the work; wait for its end, and print what it made, or print its id alone.

    Args:
        here: the other options of the command: ``wait``, and options about this machine, which are refused.
    """
    for name, value in here.items():
        if value and (name, value) != ("device", "cpu") and name != "wait":
            raise click.UsageError(f"--{name.replace('_', '-')} is about this machine; leave it out with --on")
    space = workspace(output)
    job = verbs.jobs.submit(kind, remote, workspace=space, **request)
    if not here["wait"]:
        output.answer(job)
        output.note(f"submitted to {job.remote}; wait for it: maskreg jobs show {job.id} --wait{_on(job)}")
        output.value(job.id)
        return
    output.note(f"job {job.id} on {job.remote}: {job.kind}, {job.output}")
    tell_done(output, wait_for(output, space, job))


def wait_for(output: Output, space: Workspace, job: verbs.jobs.RemoteJob) -> verbs.jobs.RemoteJob:
    """The job at its end. Ctrl-C leaves it as it is, and says how to go on."""
    try:
        with output.progress() as progress:
            return verbs.jobs.wait(job.id, job.remote, progress=progress, workspace=space)
    except KeyboardInterrupt:
        output.note(f"job {job.id} goes on; wait for it: maskreg jobs show {job.id} --wait{_on(job)}")
        output.note(f"  or stop it: maskreg jobs cancel {job.id}{_on(job)}")
        raise


def tell_done(output: Output, job: verbs.jobs.RemoteJob) -> None:
    """Print what a job made."""
    output.answer(job)
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


def _on(job: verbs.jobs.RemoteJob) -> str:
    return f" --on {shlex.quote(job.remote)}"

"""``maskreg doctor``: check that everything the other commands need works."""

from __future__ import annotations

from pathlib import Path

import click

from .command import Command, workspace
from .next_step import next_step, stated
from .output import Output
from .values import FolderType

_MARKS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


@click.command(
    cls=Command,
    example="""
    maskreg doctor
    maskreg doctor ./checkpoints
    """,
)
@click.argument("directory", required=False, type=FolderType())
@click.pass_context
def command(ctx: click.Context, directory: Path | str | None) -> None:
    """Check the registry, its catalog, the disk and all remotes.

    Nothing is created. Exits 1 when a check fails; with -q only what is not well is printed. With DIRECTORY, what
    interrupted runs of `apply`, `export` and `report` left in it is removed; of a prefix in a bucket, what stood
    still for an hour.
    """
    from maskreg.workspace.verbs.doctor import findings

    output = ctx.ensure_object(Output)
    results = []
    for finding in findings(workspace(output), directory):
        results.append(finding)
        if not output.json and (finding.status != "ok" or not output.quiet):
            output.data(f"{_MARKS[finding.status]}  {finding.what:<14}  {finding.detail}")
            if finding.error is not None and (step := next_step(finding.error)):
                output.data(f"{'':<22}next: {step}")
    if output.json:
        output.document([stated(finding.to_json(), finding.error) for finding in results])
    ctx.exit(1 if any(finding.status == "bad" for finding in results) else 0)

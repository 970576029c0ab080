"""``maskreg gc``: delete artifacts that no tag points to."""

from __future__ import annotations

from datetime import timedelta

import click

from maskreg.words import counted, human_bytes

from .command import Command, workspace
from .output import Output
from .values import DURATION


@click.command(
    cls=Command,
    example="""
    maskreg gc --dry-run
    maskreg gc --remote lab --grace 30d
    """,
)
@click.option(
    "--grace",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Keep what was written, or lost its tag, less than this ago.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@click.option("--remote", help="Collect on a remote, not in the local registry.")
@click.pass_obj
def command(output: Output, grace: timedelta, dry_run: bool, remote: str | None) -> None:
    """Delete artifacts that no tag points to.

    Also deletes what interrupted work left behind. Safe while others push: an artifact that
    is tagged in the meantime is kept.
    """
    from maskreg.workspace.gc import gc

    with output.progress() as progress:
        report = gc(grace, dry_run=dry_run, remote=remote, progress=progress, workspace=workspace(output))
    if output.json:
        output.document(report.to_json())
        return
    for artifact in report.collected:
        output.data(f"{artifact.digest}  {human_bytes(artifact.bytes)}")
    for error in report.damaged:
        output.note(f"kept whatever this tag points to: {error.message}\nnext: {error.hint}")
    verb = "would delete" if dry_run else "deleted"
    debris = f", {counted(report.debris_files, 'file')} of interrupted work" if report.debris_files else ""
    output.note(f"{verb} {counted(len(report.collected), 'artifact')}{debris}, {human_bytes(report.bytes)}")

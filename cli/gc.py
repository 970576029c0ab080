"""``maskreg gc``: delete what no name points to."""

from __future__ import annotations

from datetime import timedelta

import click

from maskreg.words import counted

from .command import Command
from .output import Output, human_bytes
from .values import DURATION


@click.command(
    cls=Command,
    example="""
    maskreg gc --dry-run
    maskreg gc --remote lab --grace 30d
    """,
)
@click.option("--grace", type=DURATION, default="7d", show_default=True, help="Leave alone what is younger than this.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--remote", help="Collect on a remote instead of in the local registry.")
@click.pass_obj
def command(output: Output, grace: timedelta, dry_run: bool, remote: str | None) -> None:
    """Delete what no name points to.

    Artifacts without a tag, and what interrupted work left behind. Safe beside pushes:
    an artifact that gets a name meanwhile stays.
    """
    from maskreg.registry.collect import collect

    from .places import registry

    there = registry(remote)
    with output.progress() as progress:
        report = collect(there, grace, dry_run=dry_run, progress=progress)
    rows = [{"digest": str(c.digest), "objects": c.objects, "bytes": c.bytes} for c in report.collected]
    if output.json:
        output.document(
            {
                "dry_run": report.dry_run,
                "collected": rows,
                "spared": [str(digest) for digest in report.spared],
                "debris_files": report.debris_files,
                "debris_bytes": report.debris_bytes,
                "bytes": report.bytes,
                "damaged": [error.message for error in report.damaged],
            }
        )
        return
    for item in report.collected:
        output.data(f"{item.digest}  {human_bytes(item.bytes)}")
    for error in report.damaged:
        output.note(f"left alone whatever it may name: {error.message}\nnext: {error.hint}")
    verb = "would delete" if dry_run else "deleted"
    debris = f", {counted(report.debris_files, 'file')} of interrupted work" if report.debris_files else ""
    output.note(f"{verb} {counted(len(rows), 'artifact')}{debris}, {human_bytes(report.bytes)}")

"""``maskreg gc``: delete artifacts that no tag points to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from maskreg.errors import TryAgainError
from maskreg.words import counted, human_bytes, listed

from .command import Command, workspace
from .output import Output, told
from .values import DURATION

if TYPE_CHECKING:
    from maskreg.registry.collect import Collected, Garbage


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
@click.option(
    "--yes-delete-many",
    "delete_many",
    is_flag=True,
    help="Delete more than half of all artifacts and more than 10.",
)
@click.option(
    "--trust-listing",
    is_flag=True,
    help="Accept the list of tags although it is empty, or lacks known entries.",
)
@click.pass_obj
def command(output: Output, /, dry_run: bool, remote: str | None, **options: Any) -> None:
    """Delete artifacts that no tag points to.

    Also deletes what interrupted work left behind. Safe while others push: an artifact that
    is tagged in the meantime is kept. What will go is printed to stderr first. Nothing is
    deleted while listings of the store disagree, or lack tags that were there before.
    """
    from maskreg.workspace.verbs.gc import gc

    verb = "would delete" if dry_run else "deleting"

    def announce(artifacts: Sequence[Collected]) -> None:
        for artifact in artifacts:
            output.note(f"{verb} {_described(artifact)}")

    with output.progress() as progress:
        how: Any = {"announce": announce, "progress": progress, "workspace": workspace(output)}
        report = gc(dry_run=dry_run, remote=remote, **options, **how)
    _print(output, report)
    if report.overtaken:
        output.reported = output.json
        where = f" --remote {remote}" if remote else ""
        raise TryAgainError(
            f"this run stood still while it deleted {listed([d.short for d in report.overtaken])}, and was taken for "
            "dead: a client that pushed them meanwhile may lack objects",
            hint=f"maskreg verify --all{where}",
        )


def _described(artifact: Collected) -> str:
    size = human_bytes(artifact.bytes)
    state = f"was {', '.join(artifact.names)}" if artifact.names else "never had a tag, as far as is known"
    pieces = "" if artifact.complete else ", without a manifest"
    return f"{artifact.digest}  {size}{pieces}, last written {artifact.modified:%Y-%m-%d}, {state}"


def _print(output: Output, report: Garbage) -> None:
    if output.printed(report):
        return
    for artifact in report.collected:
        output.data(f"{artifact.digest}  {human_bytes(artifact.bytes)}")
    for error in report.damaged:
        output.note(told(f"kept the artifacts of this tag: {error.message}", error))
    if report.many and report.dry_run:
        output.note("this is more than half of all artifacts; deleting them needs --yes-delete-many")
    if report.spared:
        output.note(f"kept {counted(len(report.spared), 'artifact')} that changed, or got a tag, during this run")
    verb = "would delete" if report.dry_run else "deleted"
    debris = f", {counted(report.debris_files, 'file')} of interrupted work" if report.debris_files else ""
    output.note(f"{verb} {counted(len(report.collected), 'artifact')}{debris}, {human_bytes(report.bytes)}")

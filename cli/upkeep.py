"""``maskreg gc`` and ``db``: delete what no tag points to, and maintain the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from maskreg.errors import TryAgainError
from maskreg.words import counted, human_bytes, listed
from maskreg.workspace import verbs

from .command import Command, Group, workspace
from .output import Output, told
from .values import DURATION

if TYPE_CHECKING:
    from maskreg.registry.collect import Collected, Garbage


@click.command(cls=Command, example="maskreg gc --remote lab --grace 30d")
@click.option("--grace", type=DURATION, default="7d", help="Keep what was written or lost its tag since then [7d].")
@click.option("-n", "--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@click.option("--remote", help="Collect on a remote, not in the local registry.")
@click.option("--yes-delete-many", "delete_many", is_flag=True, help="Delete more than 10 and half of all artifacts.")
@click.option("--trust-listing", is_flag=True, help="Accept a list of tags that is empty or lacks known entries.")
@click.pass_obj
def gc(output: Output, /, dry_run: bool, remote: str | None, **options: Any) -> None:
    """Delete artifacts that no tag points to.

    Also deletes what interrupted work left behind. Safe while others push: an artifact that
    is tagged in the meantime is kept. What will go is printed to stderr first. Nothing is
    deleted while listings of the store disagree, or lack tags that were there before.
    """
    verb = "would delete" if dry_run else "deleting"

    def announce(artifacts: Sequence[Collected]) -> None:
        for artifact in artifacts:
            output.note(f"{verb} {_described(artifact)}")

    with output.progress() as progress:
        how: Any = {"announce": announce, "progress": progress, "workspace": workspace(output)}
        report = verbs.gc.gc(dry_run=dry_run, remote=remote, **options, **how)
    _print(output, report)
    if report.overtaken:
        output.reported = output.json
        where = f" --remote {remote}" if remote else ""
        raise TryAgainError(
            f"this run stood still while it deleted {listed([d.short for d in report.overtaken])}, and was taken for "
            "dead: a client that pushed them meanwhile might lack objects",
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


@click.group(cls=Group, example="maskreg db upgrade")
def db() -> None:
    """Maintain the catalog, the index of a registry."""


_REMOTE = click.option("--remote", help="Use the catalog of a remote instead of the local one.")


@db.command(
    example="""
    maskreg db upgrade
    maskreg db upgrade --remote lab
    maskreg db upgrade --catalog postgresql+psycopg://maskreg@db/maskreg
    """
)
@_REMOTE
@click.option("--catalog", metavar="URL", help="Upgrade the database of a server, accounts and jobs included.")
@click.pass_obj
def upgrade(output: Output, remote: str | None, catalog: str | None) -> None:
    """Upgrade the catalog to this version's schema, and a server's tables beside it.

    With --catalog, a database in PostgreSQL gets all tables that `maskreg serve` needs. Without, the tables of accounts
    and jobs are upgraded where they exist.
    """
    if catalog is not None:
        if remote is not None:
            raise click.UsageError("--catalog and --remote name two databases; give one of them")
        from maskreg.service.auth.database import upgrade_server

        before, after = upgrade_server(catalog)
    else:
        from maskreg.service.auth.database import upgrade_own

        space = workspace(output)
        upgraded = verbs.db.upgrade(remote, workspace=space)
        before, after = upgraded.before, upgraded.after
        upgrade_own(f"sqlite:///{space.root / 'service.db'}" if remote is None else space.registry(remote).index.url)
    output.tell({"before": before, "after": after}, f"schema {before or 'none'} -> {after}")


@db.command(example="maskreg db check --remote lab")
@_REMOTE
@click.pass_obj
def check(output: Output, remote: str | None) -> None:
    """Open the catalog as other commands do; exit 78 when its schema is not this version's."""
    schema = verbs.db.check(remote, workspace=workspace(output))
    output.answer(schema)
    output.data(f"usable, schema {schema.revision}" if schema.usable else "does not exist yet")


@db.command(example="maskreg db rebuild")
@_REMOTE
@click.pass_obj
def rebuild(output: Output, remote: str | None) -> None:
    """Recreate the index from the store; measurements and events are kept."""
    with output.progress() as progress:
        rebuilt = verbs.db.rebuild(remote, progress=progress, workspace=workspace(output))
    output.answer(rebuilt)
    for error in rebuilt.damaged:
        output.note(f"left out: {error.message}")
    if rebuilt.damaged_catalog:
        output.note(f"the catalog was damaged; its measurements and events are in {rebuilt.damaged_catalog}")
    output.note(f"indexed {counted(rebuilt.refs, 'tag')} and {counted(rebuilt.artifacts, 'artifact')}")

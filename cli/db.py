"""``maskreg db``: schema and content of the catalog."""

from __future__ import annotations

import click

from maskreg.words import counted

from .command import Group, workspace
from .output import Output


@click.group(cls=Group, example="maskreg db upgrade")
def command() -> None:
    """Maintain the catalog, the index of a registry."""


def _remote_option(function: click.decorators.FC) -> click.decorators.FC:
    return click.option("--remote", help="Use the catalog of a remote instead of the local one.")(function)


@command.command(
    example="""
    maskreg db upgrade
    maskreg db upgrade --remote lab
    maskreg db upgrade --catalog postgresql+psycopg://maskreg@db/maskreg
    """
)
@_remote_option
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
        from maskreg.workspace.verbs import db

        space = workspace(output)
        upgraded = db.upgrade(remote, workspace=space)
        before, after = upgraded.before, upgraded.after
        upgrade_own(f"sqlite:///{space.root / 'service.db'}" if remote is None else space.registry(remote).catalog_url)
    output.tell({"before": before, "after": after}, f"schema {before or 'none'} -> {after}")


@command.command(example="maskreg db current")
@_remote_option
@click.pass_obj
def current(output: Output, remote: str | None) -> None:
    """Print the catalog's schema revision."""
    from maskreg.workspace.verbs import db

    schema = db.current(remote, workspace=workspace(output))
    if not output.printed(schema):
        output.data(schema.revision or "none")


@command.command(example="maskreg db check --remote lab")
@_remote_option
@click.pass_obj
def check(output: Output, remote: str | None) -> None:
    """Open the catalog as other commands do; exit 78 when its schema is not this version's."""
    from maskreg.workspace.verbs import db

    schema = db.check(remote, workspace=workspace(output))
    if not output.printed(schema):
        output.data(f"usable, schema {schema.revision}" if schema.usable else "does not exist yet")


@command.command(example="maskreg db rebuild")
@_remote_option
@click.pass_obj
def rebuild(output: Output, remote: str | None) -> None:
    """Recreate the index from the store; measurements and events are kept."""
    from maskreg.workspace.verbs import db

    with output.progress() as progress:
        rebuilt = db.rebuild(remote, progress=progress, workspace=workspace(output))
    if output.printed(rebuilt):
        return
    for error in rebuilt.damaged:
        output.note(f"left out: {error.message}")
    if rebuilt.damaged_catalog:
        output.note(f"the catalog was damaged; its measurements and events are in {rebuilt.damaged_catalog}")
    output.note(f"indexed {counted(rebuilt.refs, 'tag')} and {counted(rebuilt.artifacts, 'artifact')}")

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


@command.command(example="maskreg db upgrade --remote lab")
@_remote_option
@click.pass_obj
def upgrade(output: Output, remote: str | None) -> None:
    """Upgrade the catalog to this version's schema."""
    from maskreg.workspace import db

    upgraded = db.upgrade(remote, workspace=workspace(output))
    if output.json:
        output.document(upgraded.to_json())
    else:
        output.note(f"schema {upgraded.before or 'none'} -> {upgraded.after}")


@command.command(example="maskreg db current")
@_remote_option
@click.pass_obj
def current(output: Output, remote: str | None) -> None:
    """Print the catalog's schema revision."""
    from maskreg.workspace import db

    schema = db.current(remote, workspace=workspace(output))
    if output.json:
        output.document(schema.to_json())
    else:
        output.data(schema.revision or "none")


@command.command(example="maskreg db check --remote lab")
@_remote_option
@click.pass_obj
def check(output: Output, remote: str | None) -> None:
    """Open the catalog as other commands do; exit 78 when its schema is not this version's."""
    from maskreg.workspace import db

    schema = db.check(remote, workspace=workspace(output))
    if output.json:
        output.document(schema.to_json())
    else:
        output.data(f"usable, schema {schema.revision}" if schema.usable else "does not exist yet")


@command.command(example="maskreg db rebuild")
@_remote_option
@click.pass_obj
def rebuild(output: Output, remote: str | None) -> None:
    """Recreate the index from the store; measurements and events are kept."""
    from maskreg.workspace import db

    rebuilt = db.rebuild(remote, workspace=workspace(output))
    if output.json:
        output.document(rebuilt.to_json())
        return
    for error in rebuilt.damaged:
        output.note(f"left out: {error.message}")
    output.note(f"indexed {counted(rebuilt.refs, 'tag')} and {counted(rebuilt.artifacts, 'artifact')}")

"""``maskreg whoami``: who one is at a service."""

from __future__ import annotations

import click

from .command import Command, workspace
from .output import Output


@click.command(cls=Command, example="maskreg whoami --server https://masks.lab.example")
@click.option("--server", metavar="URL", help="URL or remote of the service [default: the default remote].")
@click.pass_obj
def command(output: Output, server: str | None) -> None:
    """Print your name and roles at a service."""
    from maskreg.workspace import accounts

    identity = accounts.whoami(server, workspace=workspace(output))
    if output.json:
        output.document(identity.to_json())
        return
    output.data(identity.name)
    if not output.quiet:
        for project, role in identity.projects.items():
            output.data(f"{'all projects' if project == '*' else project}\t{role}")

"""``maskreg token``: tokens of a service."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from .command import Group, workspace
from .output import Output
from .values import DURATION

_NEVER = "never"


class _ExpiryType(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """A length of time, or ``never``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta | str:
        """Parse it."""
        return _NEVER if value == _NEVER else DURATION.convert(value, param, ctx)


@click.group(cls=Group, example="maskreg token create --project team --role writer --expires 30d")
def command() -> None:
    """Make, list and revoke tokens of a service."""


def _server_option(function: click.decorators.FC) -> click.decorators.FC:
    text = "URL or remote of the service [default: the default remote]."
    return click.option("--server", metavar="URL", help=text)(function)


@command.command(
    example="""
    maskreg token create --project team --role writer --name ada --expires 30d
    maskreg token create --project team --role reader --json
    """
)
@click.option("--project", required=True, help="Where it may be used; '*' for all projects.")
@click.option(
    "--role", type=click.Choice(["reader", "writer", "admin"]), required=True, help="The most that it may do."
)
@click.option("--name", help="Whose it is, recorded as the writer of tags [default: your own name].")
@click.option("--expires", type=_ExpiryType(), default="30d", show_default=True, help="From now on, or never.")
@_server_option
@click.pass_obj
def create(output: Output, /, project: str, expires: timedelta | str, **options: str | None) -> None:
    """Make a token for a project, of which you have to be an admin; its owner becomes a member.

    It is printed once: the service keeps only a hash.
    """
    from maskreg.workspace import accounts

    length = expires if isinstance(expires, timedelta) else None
    made = accounts.create_token(project, expires=length, workspace=workspace(output), **options)  # type: ignore[arg-type]
    if output.json:
        output.document(made.to_json())
        return
    until = f"until {made.expires_at:%Y-%m-%d}" if made.expires_at else "until it is revoked"
    output.note(f"token {made.id}: {made.name} is {made.role} in {made.project}, {until}")
    output.data(made.token)


@command.command("list", example="maskreg token list --project team")
@click.option("--project", help="Tokens of a project, whose admin you have to be [default: your own].")
@_server_option
@click.pass_obj
def list_(output: Output, project: str | None, server: str | None) -> None:
    """List tokens: id, owner, project, role, and when each expires and was last used."""
    from maskreg.workspace import accounts

    listed = accounts.tokens(project, server=server, workspace=workspace(output))
    if output.json:
        output.document([token.to_json() for token in listed])
        return
    for token in listed:
        expires = f"expires {token.expires_at:%Y-%m-%d}" if token.expires_at else "does not expire"
        used = f"used {token.used_at:%Y-%m-%d}" if token.used_at else "never used"
        row = (token.id, token.name, token.project, token.role, expires, used)
        output.data(token.id if output.quiet else "\t".join(row))


@command.command(example="maskreg token revoke 7f3a09c2d1e4b586")
@click.argument("token", metavar="ID")
@_server_option
@click.pass_obj
def revoke(output: Output, token: str, server: str | None) -> None:
    """Revoke the token ID; who shows it from now on is refused."""
    from maskreg.workspace import accounts

    revoked = accounts.revoke_token(token, server=server, workspace=workspace(output))
    if output.json:
        output.document({"id": revoked.id, "revoked": True})
    else:
        output.note(f"revoked token {revoked.id} of {revoked.name}")

"""``maskreg login`` and the other commands for accounts of a service: tokens and quotas."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import click

from maskreg.settings.file import parse_duration, parse_size
from maskreg.words import counted, human_bytes
from maskreg.workspace import verbs

from .command import Command, Group, workspace
from .output import Output
from .values import Parsed

_LONGEST = 4096
_SERVER = click.option("--server", metavar="URL", help="URL or remote of the service [default: the default remote].")
_SIZE = Parsed("size", lambda text: None if text == "none" else parse_size(text))
_EXPIRY = Parsed("duration", lambda text: None if text == "never" else parse_duration(text))


@click.command(cls=Command, example="maskreg login https://masks.lab.example --token-stdin < token")
@click.argument("url")
@click.option("--token-stdin", "from_stdin", is_flag=True, help="Read the token from standard input.")
@click.pass_obj
def command(output: Output, url: str, from_stdin: bool) -> None:
    """Keep a token for the service at URL.

    It is checked with the service first, and kept in the keyring where one works, else in a file of the
    user alone. Without --token-stdin it is asked for at the terminal. No option takes a token, because others see the
    arguments of commands. MASKREG_TOKEN in the environment goes before what is kept.
    """
    if from_stdin:
        token = sys.stdin.read(_LONGEST).strip()
    elif sys.stdin.isatty():
        with output.alone():
            token = click.prompt("token", hide_input=True, err=True).strip()
    else:
        raise click.UsageError("the token is not on a terminal: add --token-stdin")
    if not token:
        raise click.UsageError("standard input is empty; it has to be the token")
    signed_in = verbs.accounts.login(url, token, workspace=workspace(output))
    output.tell(signed_in, f"logged in to {signed_in.url} as {signed_in.name}; the token is in {signed_in.kept}")


@click.command(cls=Command, example="maskreg logout https://masks.lab.example")
@click.argument("url", required=False)
@click.pass_obj
def logout(output: Output, url: str | None) -> None:
    """Forget the token for the service at URL.

    Without URL, the URL of the default remote, or of the only one.

    Copies of the token stay valid: `maskreg token revoke` ends them.
    """
    left = verbs.accounts.logout(url, workspace=workspace(output))
    output.tell(left, f"logged out of {left.url}" if left.removed else f"no one was logged in to {left.url}")


@click.command(cls=Command, example="maskreg whoami --server https://masks.lab.example")
@_SERVER
@click.pass_obj
def whoami(output: Output, server: str | None) -> None:
    """Print your name and roles at a service."""
    identity = verbs.accounts.whoami(server, workspace=workspace(output))
    output.answer(identity)
    output.data(identity.name)
    if not output.quiet:
        for project, role in identity.projects.items():
            output.data(f"{'all projects' if project == '*' else project}\t{role}")


def _limit(text: str) -> int | None:
    if text != "none" and not text.removeprefix("-").isdecimal():
        raise ValueError(f"{text!r} is neither a whole number nor none")
    return None if text == "none" else int(text)


@click.command(cls=Command, example="maskreg quota team --max-bytes 500GB --max-artifacts 1000")
@click.argument("project")
@click.option("--max-bytes", type=_SIZE, default=..., help="Such as 500GB, or none for no limit.")
@click.option("--max-artifacts", type=Parsed("number", _limit), default=..., help="A number, or none for no limit.")
@_SERVER
@click.pass_obj
def quota(output: Output, /, project: str, **options: Any) -> None:
    """Print or set what PROJECT can hold at a service.

    A quota counts the artifacts that the project's tags point to. Only an admin of the server sets it; a limit that is
    not named stays as it is.
    """
    found = verbs.accounts.quota(project, workspace=workspace(output), **options)
    output.answer(found)
    space = "no limit on bytes" if found.max_bytes is None else human_bytes(found.max_bytes)
    number = "no limit on artifacts" if found.max_artifacts is None else counted(found.max_artifacts, "artifact")
    output.data(f"{found.name}\t{space}\t{number}")


@click.group(cls=Group, example="maskreg token create --project team --role writer --expires 30d")
def token() -> None:
    """Make, list and revoke tokens of a service."""


@token.command(example="maskreg token create --project team --role writer --name ada --expires 30d")
@click.option("--project", required=True, help="Project that it is for; '*' for all projects.")
@click.option("--role", type=click.Choice(["reader", "writer", "admin"]), required=True, help="Its highest role.")
@click.option("--name", help="Whose it is, recorded as the writer of tags [default: your own name].")
@click.option("--expires", type=_EXPIRY, default="30d", show_default=True, help="From now on, or never.")
@_SERVER
@click.pass_obj
def create(output: Output, /, project: str, expires: timedelta | None, **options: str | None) -> None:
    """Make a token for a project, of which you have to be an admin; its owner becomes a member.

    It is printed once: the service keeps only a hash.
    """
    made = verbs.accounts.create_token(project, expires=expires, workspace=workspace(output), **options)  # type: ignore[arg-type]
    output.answer(made)
    until = f"until {made.expires_at:%Y-%m-%d}" if made.expires_at else "until it is revoked"
    output.note(f"token {made.id}: {made.name} is {made.role} in {made.project}, {until}")
    if made.new_project:
        output.note(f"note: {made.project} is a new project; if the name is mistyped: maskreg token revoke {made.id}")
    output.data(made.token)


@token.command("list", example="maskreg token list --project team")
@click.option("--project", help="Tokens of a project, whose admin you have to be [default: your own].")
@_SERVER
@click.pass_obj
def list_(output: Output, project: str | None, server: str | None) -> None:
    """List tokens: id, owner, project, role, and when each expires and was last used."""
    listed = verbs.accounts.tokens(project, server=server, workspace=workspace(output))
    output.answer(listed)
    for token in listed:
        expires = f"expires {token.expires_at:%Y-%m-%d}" if token.expires_at else "does not expire"
        used = f"used {token.used_at:%Y-%m-%d}" if token.used_at else "never used"
        row = (token.id, token.name, token.project, token.role, expires, used)
        output.data(token.id if output.quiet else "\t".join(row))


@token.command(example="maskreg token revoke 7f3a09c2d1e4b586")
@click.argument("token", metavar="ID")
@_SERVER
@click.pass_obj
def revoke(output: Output, token: str, server: str | None) -> None:
    """Revoke the token ID; requests with it are refused from now on."""
    revoked = verbs.accounts.revoke_token(token, server=server, workspace=workspace(output))
    output.tell({"id": revoked.id, "revoked": True}, f"revoked token {revoked.id} of {revoked.name}")

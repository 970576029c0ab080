"""``maskreg login``: keep a token for a service."""

from __future__ import annotations

import sys

import click

from .command import Command, workspace
from .output import Output

_LONGEST = 4096


@click.command(
    cls=Command,
    example="""
    maskreg login https://masks.lab.example --token-stdin < token
    maskreg login http://127.0.0.1:8470
    """,
)
@click.argument("url")
@click.option("--token-stdin", "from_stdin", is_flag=True, help="Read the token from standard input.")
@click.pass_obj
def command(output: Output, url: str, from_stdin: bool) -> None:
    """Keep a token for the service at URL.

    It is checked with the service first, and kept in the keyring where one works, else in a file of the
    user alone. Without --token-stdin it is asked for at the terminal. No option takes a token, because others see the
    arguments of commands. MASKREG_TOKEN in the environment goes before what is kept.
    """
    from maskreg.workspace import accounts

    if from_stdin:
        token = sys.stdin.read(_LONGEST).strip()
    elif sys.stdin.isatty():
        with output.alone():
            token = click.prompt("token", hide_input=True, err=True).strip()
    else:
        raise click.UsageError("the token is not on a terminal: add --token-stdin")
    if not token:
        raise click.UsageError("standard input is empty; it has to be the token")
    signed_in = accounts.login(url, token, workspace=workspace(output))
    if output.json:
        output.document(signed_in.to_json())
    else:
        output.note(f"logged in to {signed_in.url} as {signed_in.name}; the token is in {signed_in.kept}")


@click.command(cls=Command, example="maskreg logout https://masks.lab.example")
@click.argument("url", required=False)
@click.pass_obj
def logout(output: Output, url: str | None) -> None:
    """Forget the token for the service at URL.

    Without URL, the URL of the default remote, or of the only one.

    Copies of the token stay valid: `maskreg token revoke` ends them.
    """
    from maskreg.workspace import accounts

    left = accounts.logout(url, workspace=workspace(output))
    if output.json:
        output.document(left.to_json())
    else:
        output.note(f"logged out of {left.url}" if left.removed else f"no one was logged in to {left.url}")


@click.command(cls=Command, example="maskreg whoami --server https://masks.lab.example")
@click.option("--server", metavar="URL", help="URL or remote of the service [default: the default remote].")
@click.pass_obj
def whoami(output: Output, server: str | None) -> None:
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

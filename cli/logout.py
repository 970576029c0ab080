"""``maskreg logout``: forget the token for a service."""

from __future__ import annotations

import click

from .command import Command, workspace
from .output import Output


@click.command(cls=Command, example="maskreg logout https://masks.lab.example")
@click.argument("url", required=False)
@click.pass_obj
def command(output: Output, url: str | None) -> None:
    """Forget the token for the service at URL.

    Without URL: the default remote, or the only one.

    Copies of the token stay valid: `maskreg token revoke` ends it.
    """
    from maskreg.workspace import accounts

    left = accounts.logout(url, workspace=workspace(output))
    if output.json:
        output.document(left.to_json())
    else:
        output.note(f"logged out of {left.url}" if left.removed else f"there was no login to {left.url}")

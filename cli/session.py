"""The workspace that a command works in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .command import again
from .output import Output

if TYPE_CHECKING:
    from maskreg.workspace.workspace import Workspace


def workspace(output: Output) -> Workspace:
    """The workspace of the settings, closed when the command ends; its notes go to people."""
    from maskreg.workspace.workspace import Workspace

    opened = Workspace(command=again(), note=lambda text: output.note(f"note: {text}"))
    return click.get_current_context().with_resource(opened)

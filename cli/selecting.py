"""The options that choose tensors, and mean the same for every command that measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_ROLE = click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="WORD,...",
    help="Only these roles or names: attention, or q_proj,o_proj; qkvo is all four of attention (repeatable).",
)
_LAYERS = click.option("--layers", default="", metavar="RANGE,...", help="Only these layers, such as 0-11 or 0,35.")


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--role`` and ``--layers``."""
    return _ROLE(_LAYERS(command))

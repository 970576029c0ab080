"""Options that a server and its workers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

REGISTRY_OPTIONS: tuple[Option, ...] = (
    click.option("--home", default="", metavar="DIR", help="Folder of the registry to serve [default: the local one]."),
    click.option("--store", default="", metavar="URL", help="Store to serve: s3://BUCKET/PREFIX or a folder."),
    click.option(
        "--catalog", default="", metavar="URL", help="Catalog of the store, in PostgreSQL; keeps accounts too."
    ),
    click.option("--remote", default="", metavar="NAME", help="Serve the store and the catalog of a remote."),
    click.option(
        "--signing-key",
        default="",
        metavar="FILE|none",
        help="Private key that signs what clients write [default: its own].",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["json", "text"]),
        default="json",
        show_default=True,
        metavar="json|text",
        help="A JSON line per request on stderr; or text, and warnings alone.",
    ),
)
"""Options of a server or worker of a registry."""

JOB_OPTIONS: tuple[Option, ...] = (
    click.option(
        "--sources",
        multiple=True,
        metavar="NAME=PATH|DIR",
        help="Checkpoint that jobs may read, or a folder whose subfolders are checkpoints; repeatable.",
    ),
    click.option("--outputs", default="", metavar="DIR", help="Folder where jobs write checkpoints, as PROJECT/NAME."),
    click.option(
        "--job-limit",
        "job_limits",
        multiple=True,
        metavar="NAME=VALUE",
        help="Limit of jobs, such as running=8, time=2h or bytes-per-project=50GB; repeatable.",
    ),
)
"""Options about jobs."""


def with_options(*groups: Sequence[Option]) -> Option:
    """A decorator that gives a command these options, in their order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate

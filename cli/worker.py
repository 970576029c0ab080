"""``maskreg worker``: work on the jobs of a server, apart from it."""

from __future__ import annotations

from typing import Any

import click

from maskreg.extras import requiring

from .command import Command
from .output import Output
from .served import JOB_OPTIONS, REGISTRY_OPTIONS, with_options
from .values import IntegerType


@click.command(
    cls=Command,
    example="""
    maskreg worker --home /srv/maskreg --sources /srv/models --outputs /srv/patched
    maskreg worker --jobs 4 --remote lab --sources /srv/models --outputs /srv/patched
    """,
)
@click.option("--jobs", type=IntegerType(1, 64), default=1, show_default=True, help="Jobs to work on at a time.")
@with_options(REGISTRY_OPTIONS, JOB_OPTIONS)
@click.pass_obj
def command(output: Output, /, **options: Any) -> None:
    """Work on the jobs that servers accept, until SIGTERM or Ctrl-C.

    It takes jobs from the database of `maskreg serve`, so give it the same registry, and the same folders of
    checkpoints and outputs: on several machines that means a file system that they share, at the same paths. Servers
    run with --no-worker then, and leave all work to workers. When the machine of a
    worker is lost, another one begins its job anew.

    Give the same --job-limit to all servers and workers.
    """
    with requiring("a worker", "server"):
        from maskreg.service.start import Options, work

    def ready(url: str) -> None:
        if output.json:
            output.record({"registry": url, "jobs": options["jobs"]})
        else:
            output.note(f"working on the jobs of {url}, {options['jobs']} at a time")

    work(Options(**options), ready)

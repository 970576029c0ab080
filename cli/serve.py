"""``maskreg serve``: a registry for a team, over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from maskreg.extras import requiring

from .command import Command
from .output import Output
from .values import DURATION, POSITIVE, IntegerType, several

if TYPE_CHECKING:
    from maskreg.service.start import Started


REGISTRY_OPTIONS = several(
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
"""Options of processes that work for a registry."""

JOB_OPTIONS = several(
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


@click.command(
    cls=Command,
    example="""
    maskreg serve
    maskreg serve --home /srv/maskreg --host 0.0.0.0 --allow-host masks.lab.example
    maskreg serve --store s3://masks/team --catalog postgresql+psycopg://maskreg@db/maskreg --workers 4
    maskreg serve --jobs 2 --sources /srv/models --sources base=/data/Qwen3-8B --outputs /srv/patched
    """,
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=IntegerType(0, 65535), default=8470, show_default=True, help="Port; 0 for one that is free."
)
@REGISTRY_OPTIONS
@click.option("--workers", type=POSITIVE, default=1, show_default=True, help="Processes that serve.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Name that requests may be addressed to; repeatable."
)
@click.option(
    "--fresh",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Readers refuse what it signs when it was silent for this long; 0d: never.",
)
@click.option(
    "--timeout",
    type=DURATION,
    default="30s",
    show_default=True,
    help="How long to wait for headers, and for the next 64 KiB of a body.",
)
@click.option("--new-admin-token", "new_admin", is_flag=True, help="Make a new first token, and revoke the old one.")
@click.option("--metrics-port", type=IntegerType(0, 65535), default=0, help="Port that gives metrics without a token.")
@click.option("--jobs", type=IntegerType(0, 64), default=0, show_default=True, help="Jobs to work on at a time.")
@JOB_OPTIONS
@click.option("--worker/--no-worker", default=True, help="Work on jobs here, or leave them to `maskreg worker`.")
@click.option(
    "--rate",
    type=IntegerType(0),
    default=500,
    show_default=True,
    help="Requests a second that an account may send to all servers together; 0 for any number.",
)
@click.option(
    "--most-compared",
    type=IntegerType(1, 1 << 62),
    default=1 << 32,
    show_default=True,
    help="Coordinates of all masks together that a page compares.",
)
@click.option("--oidc-issuer", default="", metavar="URL", help="OpenID provider that people sign in with.")
@click.option("--oidc-client-id", default="", metavar="ID", help="What the provider calls this server.")
@click.option("--oidc-claim", default="groups", show_default=True, help="Claim that lists the groups of a user.")
@click.option(
    "--oidc-grant", "oidc_grants", multiple=True, metavar="GROUP=PROJECT:ROLE", help="Role that a group gives."
)
@click.pass_obj
def command(output: Output, /, fresh: timedelta, timeout: timedelta, **options: Any) -> None:
    """Serve a registry to a team, with accounts, over HTTP.

    The first start prints a token for its admin, once; only its hash is kept. `maskreg login` takes it, and
    `maskreg token create` makes others. The server listens on this machine alone unless --host says otherwise; put a
    proxy with TLS in front of it then. It stops on SIGTERM and Ctrl-C, when all requests are answered.

    With --jobs, the server also patches, merges and extracts for its clients (`maskreg apply REF --on SERVER`). It
    reads only the checkpoints of --sources, and writes into --outputs. When it stops, it leaves a job that runs in
    the queue, and begins it anew at its next start. With --no-worker it accepts jobs, and `maskreg worker` does them.

    People sign in on its pages with a token, or with the OpenID provider of --oidc-issuer. MASKREG_OIDC_SECRET holds
    the client's secret, or MASKREG_OIDC_SECRET_FILE names a file that does; the provider sends browsers back to
    /sign-in/oidc/callback.
    """
    with requiring("a server", "server"):
        from maskreg.service.start import Options, serve
        from maskreg.settings.credentials import is_loopback

    if not timeout:
        raise click.UsageError("--timeout has to be longer than 0s")
    chosen = Options(**options, fresh_s=int(fresh.total_seconds()), timeout_s=timeout.total_seconds())
    if not is_loopback(chosen.host):
        output.note(f"note: other machines can reach {chosen.host}; tokens travel in the clear without TLS in front")
    serve(chosen, lambda started: _tell(output, started))


def _tell(output: Output, started: Started) -> None:
    token = started.first.token if started.first else None
    if output.json:
        output.record({"url": started.url, "registry": started.registry, "token": token})
        return
    output.note(f"serving {started.registry} at {started.url}")
    if token:
        output.note("the token of its admin, which is shown once:")
        output.data(token)
        output.note(f"  next: maskreg login {started.url} --token-stdin")


@click.command(
    cls=Command,
    example="""
    maskreg worker --home /srv/maskreg --sources /srv/models --outputs /srv/patched
    maskreg worker --jobs 4 --remote lab --sources /srv/models --outputs /srv/patched
    """,
)
@click.option("--jobs", type=IntegerType(1, 64), default=1, show_default=True, help="Jobs to work on at a time.")
@REGISTRY_OPTIONS
@JOB_OPTIONS
@click.pass_obj
def worker(output: Output, /, **options: Any) -> None:
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

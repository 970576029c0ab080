"""``maskreg serve``: a registry for a team, over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from maskreg.extras import requiring

from .command import Command
from .output import Output
from .values import DURATION, POSITIVE, IntegerType

if TYPE_CHECKING:
    from maskreg.service.start import Started


@click.command(
    cls=Command,
    example="""
    maskreg serve
    maskreg serve --home /srv/maskreg --host 0.0.0.0 --allow-host masks.lab.example
    maskreg serve --store s3://masks/team --catalog postgresql+psycopg://maskreg@db/maskreg --workers 4
    maskreg serve --jobs 2 --sources /srv/models --outputs /srv/patched
    """,
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=IntegerType(0, 65535), default=8470, help="Port; 0 for a free one.", show_default=True)
@click.option("--home", default="", metavar="DIR", help="Folder of the registry to serve [default: the local one].")
@click.option("--store", default="", metavar="URL", help="Store to serve: s3://BUCKET/PREFIX or a folder.")
@click.option("--catalog", default="", metavar="URL", help="Catalog of the store, in PostgreSQL; keeps accounts too.")
@click.option("--signing-key", default="", metavar="FILE|none", help="Key that signs what clients write [its own].")
@click.option("--workers", type=POSITIVE, default=1, show_default=True, help="Processes that serve.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Name of this server (repeatable).")
@click.option("--fresh", type=DURATION, default="7d", help="Readers refuse what it signed longer ago; 0d: never [7d].")
@click.option("--new-admin-token", "new_admin", is_flag=True, help="Make a new first token, and revoke the old one.")
@click.option("--metrics-port", type=IntegerType(0, 65535), default=0, help="Port that gives metrics without a token.")
@click.option("--jobs", type=IntegerType(0, 64), help="Jobs to work on at a time [1]; 0 leaves them to other servers.")
@click.option("--sources", multiple=True, metavar="DIR", help="Folder of checkpoints for jobs to read (repeatable).")
@click.option("--outputs", default="", metavar="DIR", help="Folder where jobs write checkpoints, as PROJECT/NAME.")
@click.option("--job-time", type=DURATION, default="6h", show_default=True, help="How long a job can take.")
@click.option("--rate", type=IntegerType(0), default=500, help="Requests a second of an account; 0: any number [500].")
@click.option("--oidc-issuer", default="", metavar="URL", help="OpenID provider that people sign in with.")
@click.option("--oidc-client-id", default="", metavar="ID", help="What the provider calls this server.")
@click.option("--oidc-claim", default="groups", show_default=True, help="Claim that lists the groups of a user.")
@click.option("--oidc-grant", "oidc_grants", multiple=True, metavar="GROUP=PROJECT:ROLE", help="Role of a group.")
@click.pass_obj
def command(output: Output, /, fresh: timedelta, job_time: timedelta, **options: Any) -> None:
    """Serve a registry to a team, with accounts, over HTTP.

    The first start prints a token for its admin, once; only its hash is kept. `maskreg login` takes it, and
    `maskreg token create` makes others. The server listens on this machine alone unless --host says otherwise; put a
    proxy with TLS in front of it then. It stops on SIGTERM and Ctrl-C, when all requests are answered.

    With --sources, the server also patches, merges and extracts for its clients (`maskreg apply REF --on SERVER`). It
    reads only checkpoints in these folders, and writes into --outputs. When it stops, it leaves a job that runs in
    the queue, and begins it anew at its next start. Servers on one database share the queue: with --jobs 0 one accepts
    jobs that others do, which need the same folders at the same paths.

    People sign in on its pages with a token, or with the OpenID provider of --oidc-issuer. MASKREG_OIDC_SECRET holds
    the client's secret, or MASKREG_OIDC_SECRET_FILE names a file that does; the provider sends browsers back to
    /sign-in/oidc/callback.
    """
    with requiring("a server", "server"):
        from maskreg.service.start import Options, serve
        from maskreg.settings.credentials import is_loopback

    if not job_time:
        raise click.UsageError("--job-time has to be longer than 0s")
    times: Any = {"fresh_s": int(fresh.total_seconds()), "job_seconds": job_time.total_seconds()}
    chosen = Options(**options, **times)
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

"""How a server starts: its parts are opened and checked, a socket is bound, and only then the caller is told.

::

    open      store, catalog and accounts; a schema that is behind is refused
    bind      the port; one that is taken is refused
    first     a token for the operator, unless the server has an admin
    ready     the listener is told the address and the token
    serve     in this process, or in several that share the socket, until SIGTERM or Ctrl-C;
              requests that were begun are answered
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from maskreg.disk import creating, make_folder
from maskreg.errors import CannotCreateError, ConfigError, UsageError
from maskreg.service import observing
from maskreg.service.app import create_app
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.openid import OpenId
from maskreg.service.background import housekeeper
from maskreg.service.context import LOOPBACK, Service
from maskreg.service.jobs.config import LONGEST_S, JobConfig, signer_of
from maskreg.service.jobs.workers import Workers
from maskreg.service.middleware import Punctual, RateLimits
from maskreg.service.observing import configure
from maskreg.service.pages.rendering import compile_templates
from maskreg.settings import Remote, Settings, checked
from maskreg.store import FileStore
from maskreg.workspace.verbs.accounts import NewToken
from maskreg.workspace.workspace import Workspace

_OPTIONS = "MASKREG_SERVED"
# A host or an address, *.DOMAIN for all names below it, * for any.
_HOST = re.compile(r"\*|(?:\*\.)?[^\s:/?#@\[\]\\*]+|\[[0-9a-f:.]+\]", re.IGNORECASE)
_WITH_PROVIDER = "maskreg serve --oidc-issuer URL --oidc-client-id ID"
_GRACE_S = 30
_TURN_S = 0.0005
_BACKLOG = 2048


@dataclass(frozen=True)
class Started:
    """A server that is about to answer."""

    url: str
    registry: str
    first: NewToken | None


def open_service(options: Options) -> Service:
    """Open the parts of a server, and check that it can serve."""
    # 0.0.0.0 and :: are not host names.
    named = () if options.host in ("0.0.0.0", "::", "") else (_in_url(options.host),)
    hosts = (*LOOPBACK, *named, *map(_host, options.hosts))
    settings, remote = settings_of(options)
    openid, limits = _openid(options), RateLimits.of(options.rate) if options.rate else None
    with ExitStack() as opened:
        workspace = opened.enter_context(Workspace(settings))
        try:
            registry = workspace.registry(remote)
            accounts = Accounts.open(database_of(settings, remote))
            opened.callback(accounts.close)
            accounts.database.check()
            registry.check_format()
            registry.index.must_open()
        except ConfigError as error:
            if "catalog_behind" in error.facts:
                where = {"home": settings.home} if remote is None else {"catalog_url": settings.remote(remote).catalog}
                error.facts |= where
            raise
        if registry.witness is not None:
            # Else the first request for a tag would wait for this machine's disk to note it.
            registry.witness.keep_in(FileStore(settings.home, sync=False))
        registry.trust.signer = signer_of(options.signing_key, settings, remote)
        registry.trust.fresh_s = options.fresh_s
        jobs = job_config_of(options, settings, remote)
        opened.pop_all()
    return Service(workspace, remote, accounts, hosts, jobs, openid, limits)


def app() -> FastAPI:
    """The application of one of several processes, whose options are in the environment."""
    content: dict[str, Any] = json.loads(os.environ[_OPTIONS])
    lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
    return _application(Options(**{**content, **lists}))


def _application(options: Options, service: Service | None = None) -> FastAPI:
    configure()
    # While a thread computes, such as the one that follows the store, others wait this long for each turn.
    sys.setswitchinterval(_TURN_S)
    compile_templates()
    return create_app(service or open_service(options))


def serve(options: Options, ready: Callable[[Started], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; requests that were begun are answered."""
    with (
        open_service(options) as service,
        _bound(options) as listener,
        _metrics(options),
        Workers(service.jobs, 1 if options.jobs is None else options.jobs) if service.jobs else nullcontext(),
    ):
        configure()
        first = service.accounts.tokens.first(anew=options.new_admin)
        if first is not None:
            service.accounts.projects.adopt(result.project for result in service.registry.index.must_open().search())
        # The first request must not get a state that has expired while nothing ran.
        housekeeper(service).turn("refresh")
        config = uvicorn.Config(
            _application(options, service) if options.workers == 1 else f"{__name__}:app",
            factory=options.workers > 1,
            workers=options.workers,
            http=Punctual,
            access_log=False,
            log_config=None,
            log_level="warning" if sys.stderr.isatty() else "info",
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        host, port = listener.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        ready(Started(f"http://{_in_url(host)}:{port}", service.registry.url, first))
        if options.workers > 1:
            service.close()
            os.environ[_OPTIONS] = json.dumps(asdict(replace(options, new_admin=False)))
            Multiprocess(config, sockets=[listener]).run()
            return
        server = uvicorn.Server(config)
        # When it has shut down, uvicorn raises the signal again that ended it; then the end was as it should be.
        try:
            server.run(sockets=[listener])
        except (KeyboardInterrupt, SystemExit):
            if not server.should_exit:
                raise


@contextmanager
def _metrics(options: Options) -> Iterator[None]:
    # The workers inherit the variable, and read it when they import the observing.
    with TemporaryDirectory(prefix="maskreg-metrics-") as folder:
        if options.workers > 1:
            os.environ[observing.FOLDER] = folder
        if options.metrics_port:
            try:
                observing.listen(options.host, options.metrics_port)
            except OSError as error:
                fault = f"{options.host}:{options.metrics_port} cannot be listened on ({error.strerror})"
                raise CannotCreateError(fault, hint="choose another --metrics-port") from error
        yield


def _openid(options: Options) -> OpenId | None:
    if bool(options.oidc_issuer) != bool(options.oidc_client_id):
        raise UsageError("--oidc-issuer and --oidc-client-id belong together", hint=_WITH_PROVIDER)
    if not options.oidc_issuer:
        if options.oidc_grants:
            raise UsageError("--oidc-grant means groups of a provider, and none is named", hint=_WITH_PROVIDER)
        return None
    return OpenId(options.oidc_issuer, options.oidc_client_id, claim=options.oidc_claim, grants=options.oidc_grants)


def _host(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise UsageError(
            f"--allow-host {name!r} is not the name of a host",
            hint="write the name alone, as in --allow-host masks.lab.example",
        )
    return name


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bound(options: Options) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With the protocol named, small answers leave at once: asyncio switches Nagle's algorithm off for these alone.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        hint = "maskreg serve --port 0 takes a port that is free" if taken else "choose another --host or --port"
        raise CannotCreateError(f"{options.host}:{options.port} cannot be listened on ({reason})", hint=hint) from error
    listener.set_inheritable(True)
    return listener


_SERVED = "served"


@dataclass(frozen=True)
class Options:
    """What is served, and to whom, as ``maskreg serve --help`` says.

    Attributes:
        rate: requests a second that an account can send to each process; 0 for any number.
        signing_key: file of the private key that signs what clients write, and becomes the key of projects that have
            none; ``none`` signs nothing. Left out, a registry in a folder makes and keeps one, and another store signs
            nothing: a key that only this machine had would shut out every other server, and this one after a loss.
        fresh_s: how long readers take what this server signs for the current state, in seconds; 0 for ever. It counts
            for projects whose key this server makes; the server renews it by itself.
        jobs: how many to work on at a time; None for one where there are checkpoints, 0 to leave them to other servers
            on the same database.
    """

    host: str = "127.0.0.1"
    port: int = 8470
    home: str = ""
    store: str = ""
    catalog: str = ""
    workers: int = 1
    hosts: tuple[str, ...] = ()
    new_admin: bool = False
    rate: int = 500
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_claim: str = "groups"
    oidc_grants: tuple[str, ...] = ()
    signing_key: str = ""
    fresh_s: int = 7 * 86_400
    metrics_port: int = 0
    jobs: int | None = None
    sources: tuple[str, ...] = ()
    outputs: str = ""
    job_seconds: float = LONGEST_S


def settings_of(options: Options) -> tuple[Settings, str | None]:
    """The settings of the workspace, and the name in them of the registry; None for the local one."""
    if bool(options.catalog) != bool(options.store):
        raise UsageError("--store and --catalog belong together", options={"store": None, "catalog": None})
    if options.home and options.store:
        raise UsageError("--home and --store name two registries", hint="leave out one of them")
    settings = Settings.load(home=options.home)
    if options.store:
        remote = checked(Remote(_SERVED, options.store, options.catalog))
        return replace(settings, remotes={_SERVED: remote}, default_remote=_SERVED, offline=False), _SERVED
    return settings, None


def database_of(settings: Settings, remote: str | None) -> str:
    """URL of the database with the accounts and the jobs."""
    catalog = settings.remote(remote).catalog if remote else ""
    return catalog or f"sqlite:///{settings.home / 'service.db'}"


def job_config_of(options: Options, settings: Settings, remote: str | None) -> JobConfig | None:
    """What workers need to know; None for a server without jobs."""
    if not options.sources and not options.outputs and not options.jobs:
        return None
    if not options.sources or not options.outputs:
        raise UsageError(
            "jobs need checkpoints to read, and a folder to write to", hint="add --sources DIR --outputs DIR"
        )
    sources = tuple(Path(source).absolute() for source in options.sources)
    for source in sources:
        if not source.is_dir():
            raise ConfigError(
                f"{source}: there is no such folder", hint="name a folder whose subfolders are checkpoints"
            )
    outputs = Path(options.outputs).absolute()
    if Path(os.path.realpath(outputs)).is_relative_to(os.path.realpath(settings.home)):
        raise UsageError(f"{outputs} is inside the registry", hint="choose a folder for --outputs outside of it")
    with creating(outputs):
        make_folder(outputs)
    parts = (settings, remote, database_of(settings, remote), sources, outputs)
    return JobConfig(*parts, options.job_seconds, options.signing_key)

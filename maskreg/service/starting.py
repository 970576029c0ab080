"""How a server starts: its parts are opened and checked, a socket is bound, and only then is anybody told.

::

    open      store, catalog and accounts; a schema that is behind is refused
    bind      the port; one that is taken is refused
    first     a token for whoever runs the server, unless somebody does already
    ready     the listener is told the address and the token
    serve     in this process, or in several that share the socket, until SIGTERM or Ctrl-C;
              requests that were begun are answered
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from maskreg.disk import creating, make_folder
from maskreg.errors import CannotCreateError, ConfigError, UsageError
from maskreg.service.accounts.accounts import Accounts
from maskreg.service.accounts.records import NewToken
from maskreg.service.app import create_app
from maskreg.service.context import LOOPBACK, Service
from maskreg.service.jobs.bench import Bench
from maskreg.service.jobs.processes import start_workers
from maskreg.service.jobs.sources import Sources
from maskreg.service.observing import metrics
from maskreg.service.observing.logs import configure
from maskreg.service.openid import OpenId, OpenIdOptions
from maskreg.service.signing import signer_of
from maskreg.service.throttle import RateLimits
from maskreg.settings import Remote, Settings, checked
from maskreg.settings.credentials import is_loopback
from maskreg.workspace.workspace import Workspace

_OPTIONS = "MASKREG_SERVED"
_SERVED = "served"
_GRACE_S = 30
_BACKLOG = 2048


@dataclass(frozen=True)
class Options:
    """What is served, and to whom.

    Attributes:
        host: address to listen on.
        port: port to listen on; 0 for one that is free.
        home: folder of the local registry; empty for that of the settings.
        store: URL of the registry's store; empty for the local registry.
        catalog: URL of its catalog in PostgreSQL, which also keeps the accounts; empty for the local registry, which
            has both in SQLite files.
        remote: name of a configured remote to serve; empty for the others.
        workers: processes that serve.
        hosts: names that requests may be addressed to, beside those of this machine itself.
        new_admin: make a new first token, and revoke the old one.
        rate: requests a second that an account may send to each process; 0 for any number.
        oidc_issuer: URL of the OpenID provider that people sign in with; empty where tokens alone sign in.
        oidc_client_id: what the provider calls this server.
        oidc_claim: the claim that lists somebody's groups.
        oidc_grants: role by project of each group, as ``GROUP=PROJECT:ROLE``.
        signing_key: file of the private key that signs what clients write, and becomes the key of projects that have
            none; ``none`` signs nothing. Left out, a registry in a folder makes and keeps one, and another store signs
            nothing: a key that only this machine had would shut out every other server, and this one after a loss.
        metrics_port: port on which everybody who reaches it may read the metrics; 0 for none.
        log_format: ``json`` for a line per request and event on standard error; ``text`` for warnings alone.
        jobs: how many the server works on at the same time, each in a process of its own; 0 for a server without jobs.
        sources: checkpoints that jobs may read: ``NAME=PATH``, or folders whose subfolders are offered.
        outputs: the folder where jobs write checkpoints.
    """

    host: str = "127.0.0.1"
    port: int = 8470
    home: str = ""
    store: str = ""
    catalog: str = ""
    remote: str = ""
    workers: int = 1
    hosts: tuple[str, ...] = ()
    new_admin: bool = False
    rate: int = 500
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_claim: str = "groups"
    oidc_grants: tuple[str, ...] = ()
    signing_key: str = ""
    metrics_port: int = 0
    log_format: str = "json"
    jobs: int = 0
    sources: tuple[str, ...] = ()
    outputs: str = ""


@dataclass(frozen=True)
class Started:
    """A server that is about to answer.

    Attributes:
        url: where.
        registry: what it serves, without credentials.
        first: the first token; None when somebody runs the server already.
    """

    url: str
    registry: str
    first: NewToken | None


def open_service(options: Options) -> Service:
    """Open the parts of a server, and check that it can serve.

    Raises:
        UsageError: the options contradict each other.
        ConfigError: a schema is behind, a registry has an unknown format, or a URL is wrong.
        UnavailableError: the store or a database does not answer.
        NotAllowedError: it refuses the credentials.
    """
    settings, remote = _settings(options)
    openid = _openid(options)
    workspace = Workspace(settings)
    try:
        registry = workspace.registry(remote)
        accounts = Accounts.open(_database(settings, remote))
        try:
            registry.check_format()
            registry.index.must_open()
            registry.trust.signer = signer_of(options.signing_key, settings, remote)
            bench = _bench(options, settings, remote)
            patching = bench.open() if bench else None
        except BaseException:
            accounts.close()
            raise
    except ConfigError as error:
        workspace.close()
        if error.hint == "maskreg db upgrade":
            error.hint = _upgrade(options, settings, remote)
        raise
    except BaseException:
        workspace.close()
        raise
    hosts = (*LOOPBACK, *_named(options.host), *options.hosts)
    return Service(
        workspace, remote, accounts, hosts, patching, openid, RateLimits.of(options.rate) if options.rate else None
    )


def app() -> FastAPI:
    """The application of one of several processes, whose options are in the environment."""
    content: dict[str, Any] = json.loads(os.environ[_OPTIONS])
    lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
    options = Options(**{**content, **lists})
    _log(options)
    return create_app(open_service(options))


def serve(options: Options, ready: Callable[[Started], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; requests that were begun are answered.

    Args:
        options: what is served, and to whom.
        ready: told once, when the socket is bound and before the first request is answered.

    Raises:
        CannotCreateError: the port is taken, or may not be used.
        MaskregError: it cannot serve; see :func:`open_service`.
    """
    service = open_service(options)
    with service, _bound(options) as listener, _shared_metrics(options), _workers(options, service):
        _log(options)
        first = service.accounts.tokens.first(anew=options.new_admin)
        if first is not None:
            service.accounts.projects.adopt(result.project for result in service.registry.index.must_open().search())
        config = _config(options, create_app(service) if options.workers == 1 else f"{__name__}:app")
        ready(Started(_url(listener), service.registry.url, first))
        if options.workers == 1:
            _run(config, listener)
        else:
            service.close()
            os.environ[_OPTIONS] = json.dumps(asdict(replace(options, new_admin=False)))
            Multiprocess(config, sockets=[listener]).run()


def _run(config: uvicorn.Config, listener: socket.socket) -> None:
    server = uvicorn.Server(config)
    # When it has shut down, uvicorn raises the signal again that ended it; then the end was as it should be.
    try:
        server.run(sockets=[listener])
    except (KeyboardInterrupt, SystemExit):
        if not server.should_exit:
            raise


def _log(options: Options) -> None:
    if options.log_format == "json":
        configure()


@contextmanager
def _shared_metrics(options: Options) -> Iterator[None]:
    # The workers inherit the variable, and read it when they import the metrics.
    with TemporaryDirectory(prefix="maskreg-metrics-") as folder:
        if options.workers > 1:
            os.environ[metrics.FOLDER] = folder
        if options.metrics_port:
            _listen(options)
        yield


def _listen(options: Options) -> None:
    try:
        metrics.listen(options.host, options.metrics_port)
    except OSError as error:
        raise CannotCreateError(
            f"{options.host}:{options.metrics_port} cannot be listened on ({error.strerror})",
            hint="choose another --metrics-port",
        ) from error


def _config(options: Options, application: FastAPI | str) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        factory=isinstance(application, str),
        workers=options.workers,
        access_log=False,
        log_config=None,
        log_level="info" if options.log_format == "json" else "warning",
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )


def _workers(options: Options, service: Service) -> AbstractContextManager[object]:
    bench = _bench(options, service.workspace.settings, service.remote)
    return start_workers(bench, options.jobs) if bench else nullcontext()


def _bench(options: Options, settings: Settings, remote: str | None) -> Bench | None:
    if not options.jobs:
        if options.sources or options.outputs:
            raise UsageError("--sources and --outputs are for jobs", hint="add --jobs 1")
        return None
    if not options.sources or not options.outputs:
        raise UsageError(
            "jobs need checkpoints to read, and a folder to write to",
            hint=f"maskreg serve --jobs {options.jobs} --sources NAME=PATH --outputs DIR",
        )
    outputs = Path(options.outputs).absolute()
    if outputs.resolve().is_relative_to(settings.home.resolve()):
        raise UsageError(f"{outputs} is inside the registry", hint="choose a folder for --outputs outside of it")
    with creating(outputs):
        make_folder(outputs)
    sources, url = Sources.parse(options.sources), _database(settings, remote)
    return Bench(
        settings,
        remote,
        url,
        sources,
        outputs,
        log_format=options.log_format,
        signing_key=options.signing_key,
    )


def _database(settings: Settings, remote: str | None) -> str:
    catalog = settings.remote(remote).catalog if remote else ""
    return catalog or f"sqlite:///{settings.home / 'service.db'}"


def _openid(options: Options) -> OpenId | None:
    if bool(options.oidc_issuer) != bool(options.oidc_client_id):
        raise UsageError("--oidc-issuer and --oidc-client-id belong together")
    if not options.oidc_issuer:
        return None
    return OpenId(OpenIdOptions(options.oidc_issuer, options.oidc_client_id, options.oidc_claim, options.oidc_grants))


def _settings(options: Options) -> tuple[Settings, str | None]:
    if options.remote and (options.store or options.catalog):
        raise UsageError("a remote names its store and its catalog; give --remote, or --store and --catalog")
    if bool(options.catalog) != bool(options.store):
        raise UsageError("--store and --catalog belong together", hint="maskreg serve --store URL --catalog URL")
    if options.home and options.store:
        raise UsageError("--home and --store are two registries; give one of them")
    settings = Settings.load(flags={"home": options.home} if options.home else {})
    if options.store:
        remote = checked(Remote(_SERVED, options.store, options.catalog))
        return replace(settings, remotes={_SERVED: remote}, default_remote=_SERVED, offline=False), _SERVED
    if options.remote:
        remote = settings.remote(options.remote)
        if remote.url.startswith(("http://", "https://")):
            raise UsageError(f"{remote.name} is a server already", hint="serve a store: s3://, file:// or a folder")
        if not remote.catalog:
            raise UsageError(
                f"{remote.name} has no catalog, which a server needs",
                hint=f"maskreg config set remotes.{remote.name}.catalog postgresql+psycopg://HOST/DATABASE",
            )
        return settings, options.remote
    return settings, None


def _upgrade(options: Options, settings: Settings, remote: str | None) -> str:
    if remote is None:
        return f"MASKREG_HOME={shlex.quote(str(settings.home))} maskreg db upgrade"
    return shlex.join(["maskreg", "db", "upgrade", "--catalog", settings.remote(remote).catalog])


def _named(host: str) -> tuple[str, ...]:
    # An address that means all of the machine's is no name that anybody would use.
    return () if host in ("0.0.0.0", "::", "") else (f"[{host}]" if ":" in host else host,)


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


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    # Addresses that mean all of the machine's are none that anybody can ask for.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def open_to_others(options: Options) -> bool:
    """Whether other machines can reach the server."""
    return not is_loopback(options.host)

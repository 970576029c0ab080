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
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from maskreg.errors import CannotCreateError, ConfigError, UsageError
from maskreg.service.accounts.accounts import Accounts
from maskreg.service.accounts.records import NewToken
from maskreg.service.app import create_app
from maskreg.service.context import LOOPBACK, Service
from maskreg.service.hosts import check_name
from maskreg.service.housekeeping import housekeeper
from maskreg.service.jobs.processes import start_workers
from maskreg.service.observing import metrics
from maskreg.service.observing.logs import configure
from maskreg.service.openid import OpenId, OpenIdOptions
from maskreg.service.options import Options, bench_of, database_of, settings_of
from maskreg.service.pace import Punctual
from maskreg.service.signing import signer_of
from maskreg.service.throttle import RateLimits
from maskreg.settings import Settings
from maskreg.settings.credentials import is_loopback
from maskreg.store import FileStore
from maskreg.workspace.workspace import Workspace

_OPTIONS = "MASKREG_SERVED"
_WITH_PROVIDER = "maskreg serve --oidc-issuer URL --oidc-client-id ID"
_GRACE_S = 30
_TURN_S = 0.0005
_BACKLOG = 2048


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
        ConfigError: a schema is behind, a registry has an unknown format, a URL is wrong, or clocks differ.
        UnavailableError: the store or a database does not answer.
        NotAllowedError: it refuses the credentials.
    """
    hosts = (*LOOPBACK, *_named(options.host), *map(check_name, options.hosts))
    settings, remote = settings_of(options)
    openid = _openid(options)
    workspace = Workspace(settings)
    try:
        registry = workspace.registry(remote)
        accounts = Accounts.open(database_of(settings, remote))
        try:
            accounts.ready()
            registry.check_format()
            registry.index.must_open()
            if registry.witness is not None:
                # Else whoever asks for a tag first would wait for this machine's disk to take down that it was seen.
                registry.witness.keep_in(FileStore(settings.home, sync=False))
            registry.trust.signer = signer_of(options.signing_key, settings, remote)
            registry.trust.fresh_s = options.fresh_s
            bench = bench_of(options, settings, remote)
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
    limits = RateLimits.of(options.rate) if options.rate else None
    return Service(
        *(workspace, remote, accounts, hosts, patching, openid, limits, options.most_compared), options.timeout_s
    )


def app() -> FastAPI:
    """The application of one of several processes, whose options are in the environment."""
    content: dict[str, Any] = json.loads(os.environ[_OPTIONS])
    lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
    options = Options(**{**content, **lists})
    _log(options)
    _share_interpreter()
    return create_app(open_service(options))


def serve(options: Options, ready: Callable[[Started], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; requests that were begun are answered.

    Args:
        options: what is served, and to whom.
        ready: called once, when the socket is bound and before the first request is answered.

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
        # Whoever asks first should not get a state that has expired while nothing ran.
        housekeeper(service).look("refresh")
        config = _config(options, create_app(service) if options.workers == 1 else f"{__name__}:app")
        ready(Started(_url(listener), service.registry.url, first))
        if options.workers == 1:
            _share_interpreter()
            _run(config, listener)
        else:
            service.close()
            os.environ[_OPTIONS] = json.dumps(asdict(replace(options, new_admin=False)))
            Multiprocess(config, sockets=[listener]).run()


def _share_interpreter() -> None:
    # While a thread computes, such as the one that follows the store, others wait this long for each turn.
    sys.setswitchinterval(_TURN_S)


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
        http=partial(Punctual, patience_s=options.timeout_s),  # type: ignore[arg-type]  # called as the class is
        access_log=False,
        log_config=None,
        log_level="info" if options.log_format == "json" else "warning",
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )


def _workers(options: Options, service: Service) -> AbstractContextManager[object]:
    bench = bench_of(options, service.workspace.settings, service.remote)
    return start_workers(bench, options.jobs) if bench and options.worker else nullcontext()


def _openid(options: Options) -> OpenId | None:
    if bool(options.oidc_issuer) != bool(options.oidc_client_id):
        raise UsageError("--oidc-issuer and --oidc-client-id belong together", hint=_WITH_PROVIDER)
    if not options.oidc_issuer:
        if options.oidc_grants:
            raise UsageError("--oidc-grant means groups of a provider, and none is named", hint=_WITH_PROVIDER)
        return None
    return OpenId(OpenIdOptions(options.oidc_issuer, options.oidc_client_id, options.oidc_claim, options.oidc_grants))


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

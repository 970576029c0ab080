"""What a server or a worker is started with, and what follows from that: the registry, the database, the jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from maskreg.disk import creating, make_folder
from maskreg.errors import UsageError
from maskreg.service.jobs.bench import Bench
from maskreg.service.jobs.limits import parse_limits
from maskreg.service.jobs.sources import Sources
from maskreg.settings import Remote, Settings, checked
from maskreg.workspace.pairs import MOST_COORDINATES

_SERVED = "served"

PATIENCE_S = 30.0
"""How long a server waits for a client that is in the middle of a request, in seconds."""


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
        rate: requests a second that an account may send to all servers on a database together; 0 for any number.
        oidc_issuer: URL of the OpenID provider that people sign in with; empty where tokens alone sign in.
        oidc_client_id: what the provider calls this server.
        oidc_claim: the claim that lists somebody's groups.
        oidc_grants: role by project of each group, as ``GROUP=PROJECT:ROLE``.
        signing_key: file of the private key that signs what clients write, and becomes the key of projects that have
            none; ``none`` signs nothing. Left out, a registry in a folder makes and keeps one, and another store signs
            nothing: a key that only this machine had would shut out every other server, and this one after a loss.
        most_compared: coordinates of all masks together that are compared while somebody waits.
        timeout_s: how long to wait for a client that is in the middle of a request, in seconds.
        fresh_s: how long readers take what this server signs for the current state, in seconds; 0 for ever. It counts
            for projects whose key this server makes; the server renews it by itself.
        metrics_port: port on which everybody who reaches it may read the metrics; 0 for none.
        log_format: ``json`` for a line per request and event on standard error; ``text`` for warnings alone.
        jobs: how many the server works on at the same time, each in a process of its own; 0 for a server without jobs.
        sources: checkpoints that jobs may read: ``NAME=PATH``, or folders whose subfolders are offered.
        outputs: the folder where jobs write checkpoints.
        worker: whether this server works on jobs itself; without, it takes them for workers that run apart.
        job_limits: how much is done at the same time, and for how long what is done is kept, as ``NAME=VALUE``; see
            :mod:`maskreg.service.jobs.limits`.
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
    most_compared: int = MOST_COORDINATES
    timeout_s: float = PATIENCE_S
    fresh_s: int = 7 * 86_400
    metrics_port: int = 0
    log_format: str = "json"
    jobs: int = 0
    sources: tuple[str, ...] = ()
    outputs: str = ""
    worker: bool = True
    job_limits: tuple[str, ...] = ()


def settings_of(options: Options) -> tuple[Settings, str | None]:
    """The settings of the workspace, and the name in them of the registry; None for the local one.

    Raises:
        UsageError: the options contradict each other.
        ConfigError: a URL is wrong, or there is no such remote.
    """
    if options.remote and (options.store or options.catalog):
        raise UsageError(
            "--remote names a store and a catalog already", hint="leave out --remote, or --store and --catalog"
        )
    if bool(options.catalog) != bool(options.store):
        raise UsageError("--store and --catalog belong together", hint="maskreg serve --store URL --catalog URL")
    if options.home and options.store:
        raise UsageError("--home and --store name two registries", hint="leave out one of them")
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


def database_of(settings: Settings, remote: str | None) -> str:
    """URL of the database with the accounts and the jobs."""
    catalog = settings.remote(remote).catalog if remote else ""
    return catalog or f"sqlite:///{settings.home / 'service.db'}"


def bench_of(options: Options, settings: Settings, remote: str | None) -> Bench | None:
    """What workers work on; None for a server without jobs.

    Raises:
        UsageError: the options contradict each other.
        ConfigError: a checkpoint is not there, or a limit is none.
        CannotCreateError: the folder for outputs cannot be made.
    """
    if not options.jobs and options.worker:
        if options.sources or options.outputs or options.job_limits:
            raise UsageError("--sources, --outputs and --job-limit are for jobs", hint="add --jobs 1")
        return None
    if not options.sources or not options.outputs:
        raise UsageError(
            "jobs need checkpoints to read, and a folder to write to",
            hint="add --sources NAME=PATH --outputs DIR",
        )
    outputs = Path(options.outputs).absolute()
    if outputs.resolve().is_relative_to(settings.home.resolve()):
        raise UsageError(f"{outputs} is inside the registry", hint="choose a folder for --outputs outside of it")
    with creating(outputs):
        make_folder(outputs)
    sources, url = Sources.parse(options.sources), database_of(settings, remote)
    return Bench(
        settings,
        remote,
        url,
        sources,
        outputs,
        limits=parse_limits(options.job_limits),
        log_format=options.log_format,
        signing_key=options.signing_key,
    )

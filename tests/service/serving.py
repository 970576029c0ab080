"""Servers for tests: an app that answers in this process, and one that listens on a port."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.routing import Mount

from maskreg.service.app import create_app
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import Database
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Role
from maskreg.service.auth.tokens import Scope
from maskreg.service.context import Service
from maskreg.service.middleware import Punctual
from maskreg.settings import Remote, Settings
from maskreg.store.s3 import S3Store
from maskreg.workspace.workspace import Workspace
from tests.buckets import new_store
from tests.servers import S3Server

ADMIN = "admin-token"

WEB = httpx2.Client(timeout=90, limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0))
"""A client for servers that listen: one of its own for a request would read all certificates first."""

ROOT = Principal("root", {EVERY_PROJECT: Role.ADMIN})

TOKENS: Mapping[str, tuple[str, Scope]] = {
    ADMIN: ("root", Scope(EVERY_PROJECT, Role.ADMIN)),
    "writer-token": ("ada", Scope("team", Role.WRITER)),
    "reader-token": ("bob", Scope("team", Role.READER)),
    "stranger-token": ("eve", Scope("elsewhere", Role.ADMIN)),
}
"""Whose each token is, and what it can do."""


class NamedAccounts(Accounts):
    """Accounts in which these tokens are valid beside others, for the secrets behind them: tests write none down."""

    secrets: Mapping[str, str]

    def authenticate(self, secret: str) -> Principal:
        """As the base class says."""
        return super().authenticate(self.secrets.get(secret, secret))


def accounts_in(url: str, public: frozenset[str] = frozenset()) -> NamedAccounts:
    """Accounts with these tokens; visitors can read projects in ``public``."""
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite") and not path.exists():
        data, secrets = _prepared()
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.write_bytes(data)
        accounts = NamedAccounts(Database.open(url))
        accounts.secrets = secrets
    else:
        accounts = _with_tokens(url)
    for project in public:
        accounts.projects.ensure(project, ROOT)
        accounts.projects.change(project, ROOT, public=True)
    return accounts


def _with_tokens(url: str) -> NamedAccounts:
    accounts = NamedAccounts(Database.open(url))
    accounts.secrets = {
        label: accounts.tokens.create(name, scope, ROOT).token for label, (name, scope) in TOKENS.items()
    }
    return accounts


@cache
def _prepared() -> tuple[bytes, Mapping[str, str]]:
    # A file with these tokens: to make one takes much longer than to copy it.
    with TemporaryDirectory() as folder:
        path = Path(folder) / "service.db"
        with closing(_with_tokens(f"sqlite:///{path}")) as accounts:
            secrets = accounts.secrets
        return path.read_bytes(), secrets


def service_in(home: Path, public: frozenset[str] = frozenset()) -> Service:
    """The parts of a server over the registry in this folder."""
    return Service(
        Workspace(Settings.load(home=str(home))), None, accounts_in(f"sqlite:///{home / 'service.db'}", public), ("*",)
    )


def service_on(store: S3Store, home: Path, catalog: str = "", accounts: str = "") -> Service:
    """The parts of a server over the registry in a bucket; its own files, without URLs of databases, in this folder."""
    remote = Remote("bucket", store.url, catalog, store.options)
    settings = replace(Settings.load(home=str(home)), remotes={"bucket": remote})
    return Service(Workspace(settings), "bucket", accounts_in(accounts or f"sqlite:///{home / 'service.db'}"), ("*",))


@contextmanager
def service_in_bucket(server: S3Server, home: Path) -> Iterator[Service]:
    """The parts of a server over an empty registry in a new bucket, whose catalog is a file in this folder."""
    with new_store(server) as store, closing(service_on(store, home, f"sqlite:///{home / 'catalog.db'}")) as service:
        service.registry.ensure_uuid()
        yield service


class Switched:
    """One app for many tests, each of which gives it a service of its own."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.url = ""

    @contextmanager
    def serving(self, service: Service) -> Iterator[None]:
        """Serve this until the block ends."""
        self.app.router.routes[:] = [Mount("/", create_app(service))]
        yield
        service.workspace.close()
        service.accounts.close()


def headers(token: str) -> dict[str, str]:
    """What a request with this token carries; nothing for an empty one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def asking(app: FastAPI) -> httpx2.AsyncClient:
    """A client for tests of very many requests, which need no thread of their own here."""
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


def stated(data: bytes) -> dict[str, str]:
    """The header that an upload has to carry, with the digest of its body."""
    return {"Repr-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"}


def until(ready: Callable[[], bool], every_s: float = 0.01) -> None:
    """Ask so often whether this holds, and wait for it two minutes at most."""
    end = time.monotonic() + 120
    while not ready():
        assert time.monotonic() < end
        time.sleep(every_s)


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """A server on a free port of this machine; gives its URL."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", http=Punctual))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive(), "the server did not start"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[Switched]:
    """One server for all tests of a module; each gives it a registry of its own."""
    switched = Switched()
    with listening(switched.app) as url:
        switched.url = url
        yield switched

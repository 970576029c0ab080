"""Servers for tests: an app that answers in this process, and one that listens on a port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from maskreg.errors import UnauthenticatedError
from maskreg.service.accounts.roles import EVERY_PROJECT, Principal, Role
from maskreg.service.context import Service
from maskreg.settings import Settings
from maskreg.workspace.workspace import Workspace

ADMIN = "admin-token"

PRINCIPALS: Mapping[str, Principal] = {
    ADMIN: Principal("root", {EVERY_PROJECT: Role.ADMIN}),
    "writer-token": Principal("ada", {"team": Role.WRITER}),
    "reader-token": Principal("bob", {"team": Role.READER}),
    "stranger-token": Principal("eve", {"elsewhere": Role.ADMIN}),
}


class FixedAccounts:
    """Accounts that know these tokens only."""

    def __init__(self, public: frozenset[str] = frozenset()) -> None:
        self._public = public

    def authenticate(self, secret: str) -> Principal:
        """As the contract says."""
        if secret not in PRINCIPALS:
            raise UnauthenticatedError("the token is not valid")
        return replace(PRINCIPALS[secret], public=self._public)

    def visitor(self) -> Principal:
        """As the contract says."""
        return Principal(public=self._public)

    def ready(self) -> None:
        """Always ready."""

    def close(self) -> None:
        """Hold nothing."""


def service_in(home: Path, public: frozenset[str] = frozenset()) -> Service:
    """The parts of a server over the registry in this folder."""
    return Service(Workspace(Settings.load(flags={"home": str(home)})), None, FixedAccounts(public), ("*",))


def headers(token: str) -> dict[str, str]:
    """What a request with this token carries; nothing for an empty one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """A server on a free port of this machine; gives its URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive(), "the server did not start"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()

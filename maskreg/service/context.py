"""What every request of a server shares: the registry that it serves, and the accounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from maskreg.closing import Closing
from maskreg.registry import Registry
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.openid import OpenId
from maskreg.service.jobs.config import JobConfig
from maskreg.service.jobs.queue import JobQueue
from maskreg.service.middleware import RateLimits
from maskreg.workspace.workspace import Workspace

MOST_COORDINATES = 1 << 32
"""Coordinates of all masks together that are compared while a client waits."""

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine that only it can use."""


@dataclass(frozen=True)
class Service(Closing):
    """A server's parts. All are safe to use from many threads.

    Attributes:
        remote: the name in the workspace of the registry that is served; None for the workspace's local registry.
        hosts: host names that requests can be addressed to; others are refused, so that no page elsewhere reaches this
            server through a name of its own.
    """

    workspace: Workspace
    remote: str | None
    accounts: Accounts
    hosts: tuple[str, ...] = LOOPBACK
    jobs: JobConfig | None = None
    openid: OpenId | None = None
    limits: RateLimits | None = None

    @property
    def registry(self) -> Registry:
        """The registry that is served."""
        return self.workspace.registry(self.remote)

    @property
    def here(self) -> dict[str, Any]:
        """The arguments of a use case that works on the registry that is served."""
        return {"remote": self.remote, "workspace": self.workspace}

    @property
    def queue(self) -> JobQueue:
        """The queue of jobs, in the database of the accounts."""
        return JobQueue(self.accounts.database)

    def close(self) -> None:
        """Close the registry and the accounts."""
        self.workspace.close()
        self.accounts.close()


def service_of(request: Request) -> Service:
    """The server's parts, for a route."""
    service: Service = request.app.state.service
    return service


async def _served(request: Request) -> Service:
    # Not awaiting anything, it runs at once, where FastAPI would send a plain function to a thread.
    return service_of(request)


Served = Annotated[Service, Depends(_served)]
"""The type of a route's parameter that takes the server's parts."""

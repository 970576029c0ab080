"""Accounts: signing in to a service, who one is there, tokens for others, and quotas."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import EllipsisType
from typing import Literal, TypeVar
from urllib.parse import quote

from maskreg.document import checked
from maskreg.errors import ConfigError, UnavailableError, UsageError
from maskreg.ref import check_project
from maskreg.result import Result
from maskreg.settings import Settings
from maskreg.settings.credentials import VARIABLE, check_token, forget, known_services, remember, service_url
from maskreg.store.connection import Connection
from maskreg.store.message import understanding
from maskreg.workspace.workspace import Workspace, opened

T = TypeVar("T")

_EVERY_PROJECT = "*"
MOST_CHARACTERS = 128
"""Of the name of a token's owner."""

MOST_DAYS = 3650
"""A token is valid for at most, unless it never expires."""


@dataclass(frozen=True)
class Identity(Result):
    """The owner of a token at a service.

    Attributes:
        name: recorded as the writer of tags.
        projects: the role by project; ``*`` is all projects.
    """

    url: str
    name: str
    projects: dict[str, str]


@dataclass(frozen=True)
class LoggedIn(Identity):
    """A token that is kept now.

    Attributes:
        kept: ``keyring``, or the path of the file that has it.
    """

    kept: str


@dataclass(frozen=True)
class LoggedOut(Result):
    """A token that is not kept any more.

    Attributes:
        removed: false when there was none.
    """

    url: str
    removed: bool


@dataclass(frozen=True)
class Token(Result):
    """A token of a service, without its secret.

    Attributes:
        id: names it.
        name: whose it is.
        project: where it can be used; ``*`` for all projects of its owner.
        role: the most that it can do.
        created_at: when it was made.
        created_by: by whom.
        expires_at: from when on it is not valid; None for never.
        revoked_at: when it was revoked; None for a token that was not.
        used_at: when it was last used; None for never.
    """

    id: str
    name: str
    project: str
    role: Literal["reader", "writer", "admin"]
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = None


@dataclass(frozen=True)
class NewToken(Token):
    """A token that was just made.

    Attributes:
        token: what its owner keeps; the service keeps only a hash, and shows it here alone.
        new_project: the project did not exist before; an admin of the server makes one so.
    """

    token: str = field(default="", repr=False)
    new_project: bool = False


@dataclass(frozen=True)
class Quota(Result):
    """What a project at a service can hold; None is no limit.

    Attributes:
        name: of the project.
    """

    name: str
    max_bytes: int | None = None
    max_artifacts: int | None = None


def login(url: str, token: str, *, workspace: Workspace | None = None) -> LoggedIn:
    """Check a token with its service, and keep it.

    Raises:
        ConfigError: not the URL of a service.
        UnauthenticatedError: the token is not valid.
        UsageError: the token is not one word.
    """
    token = check_token(token.strip(), "the token")
    with opened(workspace) as space, _connected(space, service_url(url), token) as service:
        identity = _whoami(service)
        if os.environ.get(VARIABLE):
            space.note(f"{VARIABLE} is set, and goes before the token that is kept now; unset it to use this one")
        return LoggedIn(identity.url, identity.name, identity.projects, remember(identity.url, token))


def logout(url: str | None = None, *, workspace: Workspace | None = None) -> LoggedOut:
    """Forget the token of a service; it stays valid until it is revoked or expires.

    Raises:
        ConfigError: not the URL of a service, or none is meant.
    """
    with opened(workspace) as space:
        service = _meant(space.settings, url)
        return LoggedOut(service, forget(service))


def whoami(server: str | None = None, *, workspace: Workspace | None = None) -> Identity:
    """Who one is at a service.

    Args:
        server: its URL, or the name of a remote; by default the default remote, or the only service logged in to.

    Raises:
        ConfigError: no service is meant.
        UnauthenticatedError: not logged in, or the token is not valid.
    """
    with opened(workspace) as space, _connected(space, _meant(space.settings, server)) as service:
        return _whoami(service)


def create_token(
    project: str,
    role: str = "reader",
    *,
    name: str | None = None,
    expires: timedelta | None = timedelta(days=30),
    server: str | None = None,
    workspace: Workspace | None = None,
) -> NewToken:
    """Make a token for a project; its owner becomes a member.

    Args:
        project: where it can be used; ``*`` for all.
        role: ``reader``, ``writer`` or ``admin``: the most that it can do.
        name: whose it is, recorded as the writer of tags; by default one's own.
        expires: from now; None for never.
        server: as for :func:`whoami`.

    Raises:
        BadRefError: not the name of a project.
        UsageError: the name is empty or too long, or the token would never be valid, or for more than ten years.
        NotAllowedError: one is no admin of the project.
    """
    if name == "":
        raise UsageError("the name of the token's owner is empty", hint="leave it out for your own name")
    if name is not None and len(name) > MOST_CHARACTERS:
        raise UsageError(f"the name of the token's owner has {len(name)} characters; the limit is {MOST_CHARACTERS}")
    if expires is not None and not timedelta(0) < expires <= timedelta(days=MOST_DAYS):
        raise UsageError(f"a token is valid for more than 0 days and at most {MOST_DAYS}", hint="use 30d, or never")
    seconds = None if expires is None else int(expires.total_seconds())
    wish = {"role": role, "name": name or "", "expires_s": seconds}
    with opened(workspace) as space, _connected(space, _meant(space.settings, server)) as service:
        return _read(service, NewToken, service.call("POST", f"/projects/{_quoted(project)}/tokens", wish))


def tokens(
    project: str | None = None, *, server: str | None = None, workspace: Workspace | None = None
) -> tuple[Token, ...]:
    """The tokens of a project, or one's own, newest first.

    Args:
        project: whose; one has to be its admin.
        server: as for :func:`whoami`.
    """
    path = "/tokens" if project is None else f"/projects/{_quoted(project)}/tokens"
    with opened(workspace) as space, _connected(space, _meant(space.settings, server)) as service:
        return tuple(_read(service, list[Token], service.call("GET", path).get("items")))


def revoke_token(token: str, *, server: str | None = None, workspace: Workspace | None = None) -> Token:
    """Revoke a token of one's own, or of a project that one is an admin of.

    Args:
        server: as for :func:`whoami`.
    """
    with opened(workspace) as space, _connected(space, _meant(space.settings, server)) as service:
        return _read(service, Token, service.call("DELETE", f"/tokens/{quote(token, safe='', errors='replace')}"))


def quota(
    project: str,
    *,
    max_bytes: int | EllipsisType | None = ...,
    max_artifacts: int | EllipsisType | None = ...,
    server: str | None = None,
    workspace: Workspace | None = None,
) -> Quota:
    """Change the limits that are given, which needs an admin of the server; returns what a project can hold.

    Args:
        max_bytes, max_artifacts: of the artifacts that its tags point to; None for no limit.
        server: as for :func:`whoami`.
    """
    given = {"max_bytes": max_bytes, "max_artifacts": max_artifacts}
    wish = {name: limit for name, limit in given.items() if limit is not ...}
    path = f"/projects/{quote(check_project(project), safe='')}"
    with opened(workspace) as space, _connected(space, _meant(space.settings, server)) as service:
        return _read(
            service, Quota, service.call("PATCH", f"{path}/quota", wish) if wish else service.call("GET", path)
        )


def _quoted(project: str) -> str:
    return quote(project if project == _EVERY_PROJECT else check_project(project), safe="")


def _meant(settings: Settings, server: str | None) -> str:
    if server is not None and "://" in server:
        return service_url(server)
    if server is not None or settings.meant_remote:
        remote = settings.remote(server)
        if remote.url.startswith(("https://", "http://")):
            return service_url(remote.url)
        if server is not None:
            raise ConfigError(f"{server} is no service but a store", hint="name the URL of a service")
    services = known_services()
    if len(services) == 1:
        return services[0]
    which = f"several services are logged in to ({', '.join(services)})" if services else "no service is logged in to"
    if services:
        raise ConfigError(which, hint="name its URL")
    raise ConfigError(which, token_of="URL")


def _connected(space: Workspace, url: str, token: str | None = None) -> closing[Connection]:
    if space.settings.offline:
        raise UnavailableError(f"{url} is not asked: offline is set", hint="unset MASKREG_OFFLINE")
    return closing(Connection(url, token=token))


def _whoami(service: Connection) -> Identity:
    return _read(service, Identity, service.call("GET", "/whoami") | {"url": service.url})


def _read(service: Connection, kind: type[T], row: object) -> T:
    with understanding(service.url):
        return checked(kind, row, service.url)

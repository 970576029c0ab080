"""Roles, and who acts: a principal and the role that it has in each project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any, Literal

from maskreg.errors import NotAllowedError, NotFoundError, UnauthenticatedError

EVERY_PROJECT = "*"
"""The grant that holds in all projects, those that do not exist yet included; an admin of it runs the server."""

ROLE_HINT = "maskreg whoami lists your roles; an admin gives others"
"""The next step for a sender without the role."""


class Role(IntEnum):
    """The rights in a project; each role has the rights of the ones before it."""

    NONE = 0
    """Nothing: the project does not exist for this principal."""
    READER = 1
    """Search, show, compare and pull."""
    WRITER = 2
    """Also push, tag and annotate."""
    ADMIN = 3
    """Also remove, restore, and manage members and tokens."""


@dataclass(frozen=True)
class Principal:
    """The sender of a request.

    Attributes:
        name: recorded as the writer of ref entries and events; empty for a visitor who did not sign in.
        token: id of the token that was shown, or that a session was signed in with; empty without one.
        id: of the account; who comes back under an old name has another. Empty for a visitor.
        deleted: projects that were deleted: they do not exist, for an admin of the server neither.
    """

    name: str = ""
    grants: Mapping[str, Role] = field(default_factory=dict)
    public: frozenset[str] = frozenset()
    token: str = ""
    id: str = ""
    deleted: frozenset[str] = frozenset()

    @property
    def is_visitor(self) -> bool:
        """Whether the sender shows no account."""
        return not self.name

    def role(self, project: str) -> Role:
        """The highest role in a project."""
        if project in self.deleted:
            return Role.NONE
        granted = max(self.grants.get(project, Role.NONE), self.grants.get(EVERY_PROJECT, Role.NONE))
        return max(granted, Role.READER) if project in self.public else granted

    @property
    def highest(self) -> Role:
        """The highest role in any project."""
        return max([*self.grants.values(), Role.READER if self.public else Role.NONE])

    @property
    def server_role(self) -> Role:
        """The role in every project; an admin of all runs the server."""
        return self.grants.get(EVERY_PROJECT, Role.NONE)


SYSTEM = Principal("maskreg serve", {EVERY_PROJECT: Role.ADMIN})
"""The server itself, which makes the first token."""


RoleName = Literal["reader", "writer", "admin"]
"""A role as the API and the command line write it."""


def role_named(name: RoleName) -> Role:
    """The role of that name."""
    return Role[name.upper()]


def name_of(role: int) -> RoleName:
    """The name of a role."""
    names: dict[int, RoleName] = {Role.READER: "reader", Role.WRITER: "writer", Role.ADMIN: "admin"}
    return names[role]


@dataclass(frozen=True)
class Project:
    """A project.

    Attributes:
        deleted_at: when it was deleted; its name stays taken.
    """

    name: str
    public: bool
    created_at: datetime
    created_by: str
    max_bytes: int | None = None
    max_artifacts: int | None = None
    deleted_at: datetime | None = None


@dataclass(frozen=True)
class Member:
    """The role of an account in a project."""

    name: str
    role: RoleName
    at: datetime
    by: str


@dataclass(frozen=True)
class Audited:
    """One change."""

    id: int
    at: datetime
    by: str
    token: str
    action: str
    project: str
    subject: str
    detail: dict[str, Any]


def check_role(principal: Principal, project: str, role: Role) -> None:
    """Check that a principal has a role in a project; to others the project does not exist."""
    held = principal.role(project)
    if held is Role.NONE and not principal.is_visitor:
        raise NotFoundError(f"there is no project {project}")
    check_held(principal, held, role, f"in project {project}")


def check_held(principal: Principal, held: Role, role: Role, scope: str) -> None:
    """Check that the role that a principal holds is high enough; ``scope`` says where, empty for any project."""
    if held >= role:
        return
    refuse_visitor(principal)
    needed = role.name.lower()
    if held is Role.NONE:
        state = f"{principal.name} has no role {scope or 'in any project'}"
    else:
        state = f"{principal.name} is {held.name.lower()} {scope or 'at most'}"
    raise NotAllowedError(f"{state}; this needs the role {needed}{'' if scope else ' in some project'}", hint=ROLE_HINT)


def refuse_visitor(principal: Principal) -> None:
    """Refuse a request without a token or session."""
    if principal.is_visitor:
        raise UnauthenticatedError("this needs a token")

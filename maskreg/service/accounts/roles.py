"""Roles, and who acts: a principal and the role that it has in each project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from maskreg.errors import NotAllowedError, NotFoundError, UnauthenticatedError

EVERY_PROJECT = "*"
"""The grant that holds in all projects, those that do not exist yet included; an admin of it runs the server."""

ROLE_HINT = "maskreg whoami lists your roles; an admin gives others"
"""The next step of whoever lacks a role."""


class Role(IntEnum):
    """What somebody may do in a project; each role may do what the ones before it may."""

    NOBODY = 0
    """Nothing: the project does not exist for this principal."""
    READER = 1
    """Search, show, compare and pull."""
    WRITER = 2
    """Also push, tag and annotate."""
    ADMIN = 3
    """Also remove, restore, and manage members and tokens."""


@dataclass(frozen=True)
class Principal:
    """Somebody who sends requests.

    Attributes:
        name: recorded as the writer of ref entries and events; empty for a visitor who did not sign in.
        grants: the role by project; ``EVERY_PROJECT`` holds in all.
        public: projects that everybody may read.
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
        """Whether nobody signed in."""
        return not self.name

    def role(self, project: str) -> Role:
        """The highest role in a project."""
        if project in self.deleted:
            return Role.NOBODY
        granted = max(self.grants.get(project, Role.NOBODY), self.grants.get(EVERY_PROJECT, Role.NOBODY))
        return max(granted, Role.READER) if project in self.public else granted

    @property
    def highest(self) -> Role:
        """The highest role in any project."""
        return max([*self.grants.values(), Role.READER if self.public else Role.NOBODY])

    @property
    def server_role(self) -> Role:
        """The role in every project; an admin of all runs the server."""
        return self.grants.get(EVERY_PROJECT, Role.NOBODY)


SYSTEM = Principal("maskreg serve", {EVERY_PROJECT: Role.ADMIN})
"""The server itself, which makes the first token."""


def check_role(principal: Principal, project: str, role: Role) -> None:
    """Check that a principal has a role in a project; to others the project does not exist."""
    held = principal.role(project)
    if held is Role.NOBODY and not principal.is_visitor:
        raise NotFoundError(f"there is no project {project}")
    check_held(principal, held, role, f"in project {project}")


def check_held(principal: Principal, held: Role, role: Role, scope: str) -> None:
    """Check that the role that a principal holds is high enough; ``scope`` says where, empty for any project."""
    if held >= role:
        return
    refuse_visitor(principal)
    needed = role.name.lower()
    if held is Role.NOBODY:
        state = f"{principal.name} has no role {scope or 'in any project'}"
    else:
        state = f"{principal.name} is {held.name.lower()} {scope or 'at most'}"
    raise NotAllowedError(
        f"{state}; this needs the role {needed}{'' if scope else ' in some project'}",
        hint=ROLE_HINT,
    )


def refuse_visitor(principal: Principal) -> None:
    """Refuse a request without a token or session."""
    if principal.is_visitor:
        raise UnauthenticatedError("this needs a token", hint="maskreg login URL --token-stdin")

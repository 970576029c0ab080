"""What accounts consist of, as the API shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from maskreg.service.accounts.roles import Role

RoleName = Literal["reader", "writer", "admin"]
"""A role as the API and the command line write it."""


def role_named(name: RoleName) -> Role:
    """The role of that name."""
    return Role[name.upper()]


def name_of(role: int) -> RoleName:
    """The name of a role that somebody has."""
    names: dict[int, RoleName] = {Role.READER: "reader", Role.WRITER: "writer", Role.ADMIN: "admin"}
    return names[role]


@dataclass(frozen=True)
class Project:
    """A project.

    Attributes:
        name: as in references.
        public: everybody may read it.
        created_at: when it was made here.
        created_by: by whom.
        max_bytes: limit of the bytes of its artifacts; None for none.
        max_artifacts: limit of their number; None for none.
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
    """Somebody's role in a project.

    Attributes:
        name: of the principal.
        role: what they may do.
        at: when they got it.
        by: who gave it.
    """

    name: str
    role: RoleName
    at: datetime
    by: str


@dataclass(frozen=True)
class Token:
    """A token, without what would let anybody use it.

    Attributes:
        id: the second part of its text.
        name: whose it is, as writers are recorded.
        project: where it may be used; ``*`` for all projects of its principal.
        role: the most that it may do there.
        created_at: when it was made.
        created_by: by whom.
        expires_at: from when on it is not valid; None for never.
        revoked_at: when it was revoked; None while it is valid.
        used_at: when it was last used, to the minute; None for never.
    """

    id: str
    name: str
    project: str
    role: RoleName
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = None


@dataclass(frozen=True)
class NewToken(Token):
    """A token that was just made.

    Attributes:
        token: its text, which is shown here and nowhere else.
    """

    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Audited:
    """One change that somebody made.

    Attributes:
        id: numbers the changes.
        at: when.
        by: who.
        token: id of the token that they showed; empty for a browser's session.
        action: what was done.
        project: where; empty for the server as a whole.
        subject: what it happened to.
        detail: anything else.
    """

    id: int
    at: datetime
    by: str
    token: str
    action: str
    project: str
    subject: str
    detail: dict[str, Any]

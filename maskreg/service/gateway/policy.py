"""What each key of the served store can be used for, and by whom: one table, and one function that reads it.

Members have a role in some project, or read a public one. What a principal cannot read does not exist: 404, and it is
missing from listings. A server's admin can do what a role in every project allows, and what the table says; not even an
admin can give an artifact other bytes than its digest, or replace an entry of a log.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, StrEnum

from maskreg.artifact.layout import ARTIFACTS, MANIFEST
from maskreg.digest import Digest
from maskreg.errors import NotAllowedError, NotFoundError
from maskreg.limits import LIMITS
from maskreg.registry.identity import IDENTITY
from maskreg.registry.keys import KEYS
from maskreg.registry.settle import MARKERS, RUNS
from maskreg.service.auth.roles import ROLE_HINT, Principal, Role, refuse_visitor
from maskreg.store.base import TEMPORARY
from maskreg.store.entry import NAMES, REFS

ANNOUNCED = "announced/sha256/"
"""Prefix of manifests that a writer sends before the objects."""

SENT = "sent/"
"""Prefix of the records of what was sent by clients that cannot read it."""

UPLOADS = "uploads/"
"""Prefix of what is uploaded by link, until it was checked."""

PROBE = "probe/"
"""Prefix of the objects with which a client tries the store."""

_PRIVATE = {
    *("staging", "incoming", "seen", "followed", "sent", "uploads", "jobs", "secrets", "trusted"),
    *("announced", "analysis", TEMPORARY),
}
"""First segments of what a server keeps for itself."""

_DATABASE = re.compile(
    r"[^/]*\.(?:db|sqlite)(?:[-.][^/]*)?|[^/]*\.(?:key|pem|lock)|config\.toml|credentials\.json", re.IGNORECASE
)


class Kind(Enum):
    """What a key is of."""

    IDENTITY = "the registry's identity"
    MANIFEST = "the manifest of an artifact"
    OBJECT = "an object of an artifact"
    ANNOUNCED = "the manifest of an artifact that is on its way"
    ENTRY = "an entry of a ref log"
    BACK_REFERENCE = "a back reference"
    MARKER = "a marker of a garbage collection"
    RUN = "the record of a garbage collection"
    KEY = "a public key of a project"
    PROBE = "an object that tries the store"
    PRIVATE = "what the server keeps for itself"
    FOREIGN = "what belongs to no artifact and no name"


class Action(StrEnum):
    """What is to be done with it."""

    READ = "read"
    SEND = "write"
    DELETE = "delete"


@dataclass(frozen=True)
class Key:
    """A key, parsed.

    Attributes:
        name: the object's key within the artifact; empty elsewhere.
        project: the project of a ref entry or a public key; empty elsewhere.
    """

    key: str
    kind: Kind
    digest: Digest | None = None
    name: str = ""
    project: str = ""

    @property
    def max_bytes(self) -> int:
        """The most bytes that an object of this kind can have."""
        return _MAX_BYTES.get(self.kind, LIMITS.object_bytes)

    @property
    def immutable(self) -> bool:
        """Whether its bytes never change."""
        return self.kind in (Kind.MANIFEST, Kind.OBJECT, Kind.ENTRY)


_MAX_BYTES = {
    Kind.IDENTITY: 64 << 10,
    Kind.MANIFEST: LIMITS.manifest_bytes,
    Kind.ANNOUNCED: LIMITS.manifest_bytes,
    Kind.ENTRY: LIMITS.ref_bytes,
    Kind.BACK_REFERENCE: 16 << 10,
    Kind.MARKER: 64 << 10,
    Kind.RUN: 64 << 10,
    Kind.PROBE: 64,
}


class _Who(Enum):
    NO_CLIENT = 0
    SERVER = 1
    """An admin of every project."""
    SOMEWHERE = 2
    """A principal with the role in some project."""
    HERE = 3
    """A principal with the role in one of the projects that the key belongs to."""


_NO_CLIENT = (_Who.NO_CLIENT, Role.ADMIN)
_SERVER = (_Who.SERVER, Role.ADMIN)
_INSIDE = (_Who.SOMEWHERE, Role.READER)
_WRITERS = (_Who.SOMEWHERE, Role.WRITER)
_READERS_HERE = (_Who.HERE, Role.READER)
_WRITERS_HERE = (_Who.HERE, Role.WRITER)
_ADMINS_HERE = (_Who.HERE, Role.ADMIN)

RULES: dict[Kind, dict[Action, tuple[_Who, Role]]] = {
    kind: dict(zip(Action, row, strict=True))
    for kind, row in {
        # what is read and listed, written, deleted
        Kind.IDENTITY: (_INSIDE, _WRITERS, _NO_CLIENT),
        Kind.MANIFEST: (_READERS_HERE, _WRITERS, _SERVER),
        Kind.OBJECT: (_READERS_HERE, _WRITERS, _SERVER),
        Kind.ANNOUNCED: (_NO_CLIENT, _WRITERS, _NO_CLIENT),
        Kind.ENTRY: (_READERS_HERE, _WRITERS_HERE, _NO_CLIENT),
        Kind.BACK_REFERENCE: (_READERS_HERE, _WRITERS_HERE, _SERVER),
        Kind.MARKER: (_WRITERS, _SERVER, _WRITERS),
        Kind.RUN: (_WRITERS, _SERVER, _SERVER),
        Kind.KEY: (_READERS_HERE, _ADMINS_HERE, _NO_CLIENT),
        Kind.PROBE: (_INSIDE, _WRITERS, _WRITERS),
        Kind.PRIVATE: (_NO_CLIENT, _NO_CLIENT, _NO_CLIENT),
        Kind.FOREIGN: (_SERVER, _SERVER, _SERVER),
    }.items()
}
"""Who can do what with keys of each kind; :mod:`maskreg.service.gateway.incoming` also checks what is sent."""


_HEX = "(?P<hex>[0-9a-f]{64})"
_PATTERNS = {
    Kind.IDENTITY: re.compile(re.escape(IDENTITY)),
    Kind.MANIFEST: re.compile(rf"{ARTIFACTS}{_HEX}/(?P<name>{re.escape(MANIFEST)})"),
    Kind.OBJECT: re.compile(rf"{ARTIFACTS}{_HEX}/(?P<name>.+)"),
    Kind.ANNOUNCED: re.compile(rf"{ANNOUNCED}{_HEX}/{re.escape(MANIFEST)}"),
    Kind.ENTRY: re.compile(rf"{REFS}(?P<project>[^/]+)/[^/]+/[^/]+/[0-9]{{20}}\.json"),
    Kind.BACK_REFERENCE: re.compile(rf"{NAMES}{_HEX}/[0-9]{{20}}-[0-9a-f]{{32}}\.json"),
    Kind.MARKER: re.compile(rf"{MARKERS}{_HEX}/[0-9a-f]{{32}}"),
    Kind.RUN: re.compile(rf"{RUNS}[0-9a-f]{{32}}\.json"),
    Kind.KEY: re.compile(rf"{KEYS}(?P<project>[^/]+)/(?:[0-9]{{20}}|heads/[0-9a-f]{{64}}|fresh)\.json"),
    Kind.PROBE: re.compile(rf"{PROBE}[0-9a-f]{{32}}/[a-z]{{1,16}}"),
}


def parse_key(key: str) -> Key:
    """Find out what a clean key is of."""
    for kind, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(key):
            found = match.groupdict()
            digest = Digest(f"sha256:{found['hex']}") if "hex" in found else None
            return Key(key, kind, digest, found.get("name", ""), found.get("project", ""))
    first, slash, _ = key.partition("/")
    # File systems that do not tell upper from lower case would take a twin for the file itself.
    if first.casefold() in _PRIVATE or (not slash and _DATABASE.fullmatch(key)):
        return Key(key, Kind.PRIVATE)
    return Key(key, Kind.FOREIGN)


def allows(kind: Kind, action: Action, principal: Principal, projects: Collection[str] = ()) -> bool:
    """Whether the table allows an action on a key of a kind."""
    who, role = RULES[kind][action]
    if who is _Who.NO_CLIENT:
        return False
    if who is _Who.SERVER or principal.server_role >= Role.ADMIN:
        return principal.server_role >= role
    if who is _Who.SOMEWHERE:
        return principal.highest >= role
    return principal.server_role >= role or any(principal.role(project) >= role for project in projects)


def check(key: Key, action: Action, principal: Principal, projects: Collection[str] = ()) -> None:
    """Refuse what the table does not allow."""
    if allows(key.kind, action, principal, projects):
        return
    who, role = RULES[key.kind][action]
    if action is Action.READ:
        raise NotFoundError(f"there is no {key.key}")
    refuse_visitor(principal)
    if who is _Who.NO_CLIENT:
        raise NotAllowedError(f"{key.key}: {key.kind.value} is not for clients to {action}")
    if who is _Who.HERE:
        project = next(iter(projects), key.project)
        if principal.role(project) is Role.NONE:
            raise NotFoundError(f"there is no project {project}")
        scope = f"in project {project}"
    else:
        scope = "on this server" if who is _Who.SERVER else "in some project"
    raise NotAllowedError(
        f"{principal.name} cannot {action} {key.kind.value}: that needs the role {role.name.lower()} {scope}",
        hint=ROLE_HINT,
    )

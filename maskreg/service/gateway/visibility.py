"""Which artifacts somebody may read: those that a tag of a project they may read points to, or ever pointed to."""

from __future__ import annotations

from dataclasses import replace

from maskreg.catalog.query import Query
from maskreg.digest import Digest
from maskreg.errors import NotAllowedError, NotFoundError
from maskreg.registry import Registry
from maskreg.registry.pointers import ever_named
from maskreg.service.auth.roles import EVERY_PROJECT, ROLE_HINT, Principal, Role


def visible(query: Query, principal: Principal) -> Query:
    """A query that gives nothing which the principal may not read."""
    hidden = query.hidden | principal.deleted
    if principal.role(EVERY_PROJECT) >= Role.READER:
        return replace(query, hidden=hidden)
    readable = {project for project, role in principal.grants.items() if role >= Role.READER} | principal.public
    return replace(query, projects=frozenset(readable), hidden=hidden)


def may_read(registry: Registry, principal: Principal, digest: Digest) -> bool:
    """Whether somebody may read an artifact; the server's admins may read those that nothing points to as well."""
    if principal.server_role >= Role.ADMIN:
        return True
    if registry.page(visible(Query(digest=digest, limit=1), principal)):
        return True
    refs = ever_named(registry, digest)
    return any(principal.role(ref.project) >= Role.READER for ref in refs)


def check_may_read(registry: Registry, principal: Principal, digest: Digest) -> None:
    """Check that somebody may read an artifact.

    Raises:
        NotFoundError: they may not, or there is none; which of them is not said.
    """
    if not may_read(registry, principal, digest):
        raise NotFoundError(f"there is no artifact {digest.short}")


def may_check(registry: Registry, principal: Principal, digest: Digest) -> bool:
    """Whether somebody may let the server verify an artifact: who may write to a project that names it."""
    if principal.server_role >= Role.WRITER:
        return True
    return any(principal.role(ref.project) >= Role.WRITER for ref in ever_named(registry, digest))


def check_may_check(registry: Registry, principal: Principal, digest: Digest) -> None:
    """Check that somebody may let the server verify an artifact.

    Raises:
        NotAllowedError: they may not.
    """
    if not may_check(registry, principal, digest):
        raise NotAllowedError(
            f"{principal.name} may not let the server verify {digest.short}: that needs the role writer in a project "
            "that names it",
            hint=ROLE_HINT,
        )

"""People who sign in with an OpenID provider: the account of each, and roles that follow their groups.

::

    known identity                      its account, whatever the provider calls the person now
    a verified address that an admin    that account becomes the person's: the admin named exactly this address
      gave a role to
    a name that is taken                refused: a provider does not hand out accounts of this server
    otherwise                           a new account, without a role unless a group gives one
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from maskreg.errors import NotAllowedError
from maskreg.service.auth.changes import account, drop_grant, ensure_project, new_account, put_grant, record
from maskreg.service.auth.database import Database
from maskreg.service.auth.models import GrantRow, PrincipalRow
from maskreg.service.auth.roles import SYSTEM, Principal, Role, name_of

PROVIDER = Principal("OpenID provider", SYSTEM.grants)
"""Who gives the roles that follow from groups."""


@dataclass(frozen=True)
class Person:
    """A person, as the provider describes them.

    Attributes:
        identity: issuer and subject; never given to another person.
        verified: the name is an address that the provider has verified.
    """

    identity: str
    name: str
    verified: bool = False


class People:
    """The accounts of people who sign in."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def sign_in(self, person: Person, grants: Mapping[str, Role] | None = None) -> Principal:
        """The account of a person who signed in."""
        with self._database.write() as connection:
            id, name = _account_of(connection, person)
            if grants is not None:
                _follow_groups(connection, id, name, grants)
        return Principal(name, id=id)


def _account_of(connection: Connection, person: Person) -> tuple[str, str]:
    live = select(PrincipalRow.id, PrincipalRow.name).where(PrincipalRow.removed_at.is_(None))
    known = connection.execute(live.where(PrincipalRow.identity == person.identity)).first()
    if known is not None:
        return known.id, known.name
    invited = account(connection, person.name)
    if invited is None:
        return new_account(connection, person.name, person.identity), person.name
    free = update(PrincipalRow).where(PrincipalRow.id == invited, PrincipalRow.identity.is_(None))
    if not person.verified or connection.execute(free.values(identity=person.identity)).rowcount != 1:
        raise NotAllowedError(f"the name {person.name} belongs to another account of this server")
    return invited, person.name


def _follow_groups(connection: Connection, id: str, name: str, grants: Mapping[str, Role]) -> None:
    rows = select(GrantRow.project, GrantRow.role, GrantRow.by).where(GrantRow.principal == id)
    held = {project: (role, by) for project, role, by in connection.execute(rows)}
    for project, (_, by) in held.items():
        if by == PROVIDER.name and project not in grants:
            drop_grant(connection, id, project)
            record(connection, PROVIDER, "revoke", project=project, subject=name)
    for project, role in grants.items():
        before, by = held.get(project, (Role.NONE, PROVIDER.name))
        # What an admin gave stays as it is.
        if by == PROVIDER.name and before != role:
            ensure_project(connection, project, PROVIDER)
            put_grant(connection, id, project, role, PROVIDER)
            record(connection, PROVIDER, "grant", project=project, subject=name, detail={"role": name_of(role)})

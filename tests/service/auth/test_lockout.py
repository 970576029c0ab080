"""A server or a project always keeps an admin who can get in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from maskreg.errors import NotAllowedError
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import TokenRow
from maskreg.service.auth.projects import Person
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Role
from maskreg.service.auth.tokens import Scope

SERVER = Scope(EVERY_PROJECT, Role.ADMIN)

Change = Callable[[Accounts, Principal], object]

CHANGES: dict[str, Change] = {
    "revoke": lambda accounts, admin: accounts.members.revoke(EVERY_PROJECT, "admin", admin),
    "demote": lambda accounts, admin: accounts.members.grant(EVERY_PROJECT, "admin", Role.READER, admin),
    "token": lambda accounts, admin: accounts.tokens.revoke(admin.token, admin),
}
"""The ways to lose an admin."""


def the_admin(accounts: Accounts) -> Principal:
    first = accounts.tokens.first()
    assert first is not None
    return accounts.authenticate(first.token)


@pytest.mark.parametrize("way", CHANGES)
def test_the_last_admin_of_a_server_stays(accounts: Accounts, way: str) -> None:
    admin = the_admin(accounts)
    # A role alone does not let its owner in, nor do tokens of lower roles.
    accounts.members.grant(EVERY_PROJECT, "bob", Role.ADMIN, admin)
    accounts.tokens.create("bob", Scope(EVERY_PROJECT, Role.WRITER), admin)
    accounts.tokens.create("bob", Scope("team", Role.ADMIN), admin)
    with pytest.raises(NotAllowedError) as refusal:
        CHANGES[way](accounts, admin)
    assert refusal.value.facts["admin_of"] == "'*'"
    recorded = [event.action for event in accounts.audit()]
    assert "revoke" not in recorded and "revoke token" not in recorded
    assert accounts.members.of(EVERY_PROJECT)[0].role == "admin"


@pytest.mark.parametrize("way", CHANGES)
def test_an_admin_of_a_server_goes_when_another_can_get_in(accounts: Accounts, way: str) -> None:
    admin = the_admin(accounts)
    accounts.tokens.create("bob", SERVER, admin)
    CHANGES[way](accounts, admin)


def test_a_person_who_signs_in_can_get_in_and_the_owner_of_an_expired_token_cannot(accounts: Accounts) -> None:
    admin = the_admin(accounts)
    made = accounts.tokens.create("bob", SERVER, admin)
    with accounts.database.write() as connection:
        past = datetime.now(UTC) - timedelta(seconds=1)
        connection.execute(update(TokenRow).where(TokenRow.id == made.id).values(expires_at=past))
    with pytest.raises(NotAllowedError):
        accounts.members.revoke(EVERY_PROJECT, "admin", admin)
    accounts.people.sign_in(Person("issuer subject", "ada@lab.example", verified=True))
    accounts.members.grant(EVERY_PROJECT, "ada@lab.example", Role.ADMIN, admin)
    accounts.members.revoke(EVERY_PROJECT, "admin", admin)


def test_two_admins_who_remove_each_other_at_the_same_time_leave_one(accounts: Accounts) -> None:
    admin = the_admin(accounts)
    bob = accounts.authenticate(accounts.tokens.create("bob", SERVER, admin).token)

    def remove(name: str, by: Principal) -> bool:
        try:
            accounts.members.revoke(EVERY_PROJECT, name, by)
        except NotAllowedError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(remove, ("bob", "admin"), (admin, bob))) == [False, True]
    assert len(accounts.members.of(EVERY_PROJECT)) == 1


def test_the_last_admin_of_a_project_stays_without_an_admin_of_the_server(accounts: Accounts) -> None:
    admin = the_admin(accounts)
    ada = accounts.authenticate(accounts.tokens.create("ada", Scope("team", Role.ADMIN), admin).token)
    accounts.members.revoke("team", "ada", admin)  # an admin of the server is left
    ada = accounts.authenticate(accounts.tokens.create("ada", Scope("team", Role.ADMIN), admin).token)
    with accounts.database.write() as connection:
        past = datetime.now(UTC) - timedelta(seconds=1)
        connection.execute(update(TokenRow).where(TokenRow.id == admin.token).values(expires_at=past))
    for change in (
        lambda: accounts.members.revoke("team", "ada", ada),
        lambda: accounts.members.grant("team", "ada", Role.WRITER, ada),
        lambda: accounts.tokens.revoke(ada.token, ada),
    ):
        with pytest.raises(NotAllowedError) as refusal:
            change()
        assert refusal.value.facts["admin_of"] == "team"

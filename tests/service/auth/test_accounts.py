"""Who can do what: tokens, members, projects, sessions, and what is recorded of changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from maskreg import errors
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.database import TokenRow
from maskreg.service.auth.projects import Person
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Role
from maskreg.service.auth.tokens import Scope

ROOT = Principal("root", {EVERY_PROJECT: Role.ADMIN})

WRITER = Scope("team", Role.WRITER)


def token(accounts: Accounts, name: str = "ada", scope: Scope = WRITER, by: Principal = ROOT) -> str:
    return accounts.tokens.create(name, scope, by).token


def refused(accounts: Accounts, secret: str) -> bool:
    with pytest.raises(errors.UnauthenticatedError):
        accounts.authenticate(secret)
    return True


def test_a_token_may_do_what_it_was_made_for_and_only_its_hash_is_stored(accounts: Accounts) -> None:
    made = accounts.tokens.create("ada", WRITER, ROOT)
    assert re.fullmatch(r"mr_[0-9a-f]{16}_[A-Za-z0-9_-]{43}", made.token)
    ada = accounts.authenticate(made.token)
    assert (ada.name, dict(ada.grants), ada.token) == ("ada", {"team": Role.WRITER}, made.id)
    assert ada.role("paper") is Role.NONE
    assert made.token not in repr(made)
    with accounts.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM service_tokens").all()
        audit = connection.exec_driver_sql("SELECT * FROM service_audit").all()
    assert made.token[20:] not in repr(rows) + repr(audit)


def test_a_wrong_token_is_refused(accounts: Accounts) -> None:
    good = token(accounts)
    other = "A" if good[-1] != "A" else "B"
    for wrong in ("", "x", "mr_", f"mr_{good[3:19]}_A", "bearer", good[:-1] + other, f"mr_{'0' * 16}{good[19:]}"):
        assert refused(accounts, wrong)


def test_a_token_expires(accounts: Accounts) -> None:
    made = accounts.tokens.create("ada", Scope("team", Role.WRITER, timedelta(days=30)), ROOT)
    assert made.expires_at is not None
    assert abs(made.expires_at - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=5)
    assert [listed.used_at for listed in accounts.tokens.list(project="team")] == [None]
    cookie = accounts.sessions.begin(accounts.authenticate(made.token))
    (listed,) = accounts.tokens.list(project="team")
    assert listed.used_at is not None
    with accounts.database.write() as connection:
        connection.execute(update(TokenRow).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    assert refused(accounts, made.token)
    assert accounts.sessions.principal(cookie) is None


def test_a_revoked_token_is_not_valid_and_not_listed(accounts: Accounts) -> None:
    made = accounts.tokens.create("ada", WRITER, ROOT)
    other = token(accounts)
    cookie = accounts.sessions.begin(accounts.authenticate(made.token))
    assert accounts.tokens.revoke(made.id, ROOT).revoked_at is not None
    assert refused(accounts, made.token)
    assert accounts.sessions.principal(cookie) is None
    assert made.id not in {listed.id for listed in accounts.tokens.list()}
    accounts.authenticate(other)
    with pytest.raises(errors.NotFoundError):
        accounts.tokens.revoke(made.id, ROOT)


def test_only_its_owner_or_an_admin_revokes_a_token(accounts: Accounts) -> None:
    made = accounts.tokens.create("ada", WRITER, ROOT)
    bob = accounts.authenticate(token(accounts, "bob"))
    with pytest.raises(errors.NotFoundError, match=made.id):
        accounts.tokens.revoke(made.id, bob)
    accounts.tokens.revoke(made.id, accounts.authenticate(made.token))
    assert refused(accounts, made.token)


def test_a_token_never_may_more_than_its_owner(accounts: Accounts) -> None:
    everywhere = token(accounts, scope=Scope(EVERY_PROJECT, Role.READER), by=ROOT)
    accounts.members.grant("team", "ada", Role.ADMIN, ROOT)
    assert accounts.authenticate(everywhere).role("team") is Role.READER
    narrow = token(accounts)
    accounts.members.grant("team", "ada", Role.READER, ROOT)
    assert accounts.authenticate(narrow).role("team") is Role.READER


def test_who_is_removed_and_comes_back_has_no_old_key(accounts: Accounts) -> None:
    old = [token(accounts), token(accounts)]
    accounts.members.grant("paper", "bob", Role.ADMIN, ROOT)
    accounts.members.grant("team", "bob", Role.READER, ROOT)
    everywhere = token(accounts, "bob", Scope("team", Role.READER))
    cookies = [accounts.sessions.begin(accounts.authenticate(secret)) for secret in (*old, everywhere)]
    ids = {accounts.authenticate(secret).id for secret in old}
    for name in ("ada", "bob"):
        accounts.members.revoke("team", name, ROOT)
    for again in (False, True):
        if again:
            for name in ("ada", "bob"):
                accounts.members.grant("team", name, Role.WRITER, ROOT)
        assert all(refused(accounts, secret) for secret in (*old, everywhere))
        assert [accounts.sessions.principal(cookie) for cookie in cookies] == [None] * 3
    assert accounts.authenticate(token(accounts)).id not in ids


def test_an_admin_of_a_project_does_not_speak_for_those_who_act_elsewhere(accounts: Accounts) -> None:
    admin = accounts.authenticate(token(accounts, "eve", Scope("team", Role.ADMIN)))
    accounts.tokens.first()
    token(accounts, "ada", Scope("paper", Role.READER))
    for name in ("ada", "admin"):
        with pytest.raises(errors.NotAllowedError, match=f"^{name} .* team,"):
            token(accounts, name, WRITER, admin)
    assert accounts.authenticate(token(accounts, "robot", WRITER, admin)).name == "robot"


def test_the_first_token_is_made_once(accounts: Accounts, url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = [new for new in pool.map(lambda _: accounts.tokens.first(), range(8)) if new]
    assert len(made) == 1
    assert accounts.authenticate(made[0].token).server_role is Role.ADMIN
    anew = accounts.tokens.first(anew=True)
    assert anew is not None
    assert refused(accounts, made[0].token)
    assert accounts.authenticate(anew.token).server_role is Role.ADMIN


def test_a_project_is_made_changed_and_deleted(accounts: Accounts) -> None:
    made = accounts.projects.create("team", ROOT)
    assert (made.name, made.public, made.created_by) == ("team", False, "root")
    with pytest.raises(errors.OutputExistsError):
        accounts.projects.create("team", ROOT)
    assert accounts.visitor().role("team") is Role.NONE
    assert accounts.projects.change("team", ROOT, public=True, max_bytes=5).max_bytes == 5
    assert accounts.visitor().role("team") is Role.READER
    assert [project.name for project in accounts.projects.visible(accounts.visitor())] == ["team"]
    assert accounts.projects.change("team", ROOT, max_bytes=None).max_bytes is None


def test_projects_that_a_registry_has_are_adopted_at_the_first_start_alone(accounts: Accounts) -> None:
    accounts.projects.adopt(["team", "paper", "team"])
    assert [project.name for project in accounts.projects.visible(ROOT)] == ["paper", "team"]
    accounts.projects.delete("paper", ROOT)
    accounts.projects.adopt(["paper", "other"])
    assert [project.deleted_at is None for project in accounts.projects.visible(ROOT)] == [False, True]


def test_what_is_no_name_of_a_project_or_an_account_is_refused(accounts: Accounts) -> None:
    for name in ("", "Team", "a/b", "a:b", "../x", "a@sha256:" + "0" * 64, EVERY_PROJECT):
        with pytest.raises(errors.BadRefError):
            accounts.projects.create(name, ROOT)
    for name in ("a/b", "a\x1b[31m", "", "x" * 129):
        with pytest.raises(errors.UsageError) as caught:
            token(accounts, name)
        assert "\x1b" not in caught.value.message


def test_the_name_of_a_deleted_project_is_not_taken_by_accident(accounts: Accounts) -> None:
    key = token(accounts)
    root = accounts.authenticate(token(accounts, "root", Scope(EVERY_PROJECT, Role.ADMIN)))
    accounts.projects.change("team", ROOT, public=True)
    accounts.projects.delete("team", ROOT)
    assert refused(accounts, key)
    assert accounts.visitor().role("team") is Role.NONE
    assert accounts.authenticate(token(accounts, "root", Scope(EVERY_PROJECT, Role.ADMIN))).role("team") is Role.NONE
    for make in (lambda: accounts.projects.ensure("team", root), lambda: token(accounts)):
        with pytest.raises(errors.NotFoundError):
            make()
    with pytest.raises(errors.NotAllowedError, match=" team "):
        accounts.projects.create("team", ROOT)
    accounts.projects.create("team", ROOT, reuse=True)
    assert refused(accounts, key)
    assert accounts.members.of("team") == []


def test_changes_are_recorded_with_who_made_them(accounts: Accounts) -> None:
    root = accounts.authenticate(token(accounts, "root", Scope(EVERY_PROJECT, Role.ADMIN)))
    accounts.projects.create("team", root, public=True)
    accounts.members.grant("team", "ada", Role.WRITER, root)
    made = accounts.tokens.create("ada", WRITER, root)
    accounts.tokens.revoke(made.id, root)
    accounts.members.revoke("team", "ada", root)
    accounts.projects.delete("team", root)
    events = accounts.audit("team")
    assert [(event.action, event.subject) for event in events] == [
        ("delete project", "team"),
        ("revoke", "ada"),
        ("revoke token", made.id),
        ("create token", made.id),
        ("grant", "ada"),
        ("create project", "team"),
    ]
    assert {(event.by, event.token) for event in events} == {("root", root.token)}
    assert [event.action for event in accounts.audit("team", before=events[3].id, limit=1)] == ["grant"]


def test_a_name_that_differs_in_case_or_width_alone_is_refused(accounts: Accounts) -> None:
    token(accounts)
    for name in ("Ada", "\N{FULLWIDTH LATIN SMALL LETTER A}da"):
        with pytest.raises(errors.NotAllowedError):
            token(accounts, name)
        with pytest.raises(errors.NotAllowedError):
            accounts.people.sign_in(Person("https://idp|7", name))
    assert accounts.tokens.create("ada", WRITER, ROOT).name == "ada"
    assert token(accounts, "adam")


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
    with pytest.raises(errors.NotAllowedError) as refusal:
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
    with pytest.raises(errors.NotAllowedError):
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
        except errors.NotAllowedError:
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
        with pytest.raises(errors.NotAllowedError) as refusal:
            change()
        assert refusal.value.facts["admin_of"] == "team"

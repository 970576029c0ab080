"""Names that look like another account's are refused."""

from __future__ import annotations

import pytest

from maskreg.errors import NotAllowedError, UsageError
from maskreg.service.auth.accounts import Accounts
from maskreg.service.auth.changes import look
from maskreg.service.auth.people import Person
from maskreg.service.auth.roles import EVERY_PROJECT, Principal, Role
from maskreg.service.auth.tokens import Scope

ROOT = Principal("root", {EVERY_PROJECT: Role.ADMIN})
READER = Scope("team", Role.READER)

CYRILLIC = "\N{CYRILLIC SMALL LETTER A}da"
WIDE = "\N{FULLWIDTH LATIN SMALL LETTER A}da"


@pytest.mark.parametrize("name", ["Ada", "ADA", CYRILLIC, CYRILLIC.upper(), WIDE, "\N{GREEK CAPITAL LETTER ALPHA}DA"])
def test_these_look_like_ada(name: str) -> None:
    assert look(name) == look("ada") == "ada"


@pytest.mark.parametrize("name", ["\N{LATIN SMALL LETTER A WITH ACUTE}da", "adam", "a-da", "a da"])
def test_these_do_not(name: str) -> None:
    assert look(name) != look("ada")


def test_a_name_that_looks_like_another_is_refused(accounts: Accounts) -> None:
    accounts.tokens.create("ada", READER, ROOT)
    for name in ("Ada", CYRILLIC, WIDE):
        with pytest.raises(NotAllowedError):
            accounts.tokens.create(name, READER, ROOT)
        with pytest.raises(NotAllowedError):
            accounts.people.sign_in(Person("https://idp|7", name))
    assert accounts.tokens.create("ada", READER, ROOT).name == "ada"
    assert [member.name for member in accounts.members.of("team")] == ["ada"]


def test_what_is_no_name_is_told_what_one_is(accounts: Accounts) -> None:
    for name in ("a/b", "a\x1b[31m", "", "x" * 129):
        with pytest.raises(UsageError) as caught:
            accounts.tokens.create(name, READER, ROOT)
        assert "without a slash" in caught.value.hint and "\x1b" not in caught.value.message

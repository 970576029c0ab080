"""Tokens of services: where they are kept, who can read them, and which URL gets them."""

from __future__ import annotations

import stat
from collections.abc import Iterator

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from maskreg.errors import ConfigError, NotAllowedError, UnavailableError, UsageError
from maskreg.settings.credentials import VARIABLE, credentials_path, forget, remember, service_url, token_for
from maskreg.workspace.verbs import accounts

URL = "https://masks.lab.example"


class Drawer(KeyringBackend):
    """A keyring in memory, which can be locked."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.passwords: dict[tuple[str, str], str] = {}
        self.locked = False

    def _unlocked(self) -> dict[tuple[str, str], str]:
        if self.locked:
            raise KeyringLocked("locked")
        return self.passwords

    def get_password(self, service: str, username: str) -> str | None:
        return self._unlocked().get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._unlocked()[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self._unlocked()[service, username]


@pytest.fixture
def drawer() -> Iterator[Drawer]:
    drawer = Drawer()
    before = keyring.get_keyring()
    keyring.set_keyring(drawer)
    try:
        yield drawer
    finally:
        keyring.set_keyring(before)


def test_a_token_is_kept_in_a_file_that_only_its_owner_can_read() -> None:
    path = credentials_path()
    assert token_for(URL) == ""
    assert remember(URL, "mr_abc_secret") == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token_for(URL) == "mr_abc_secret"
    path.chmod(0o640)
    for use in (token_for, forget):
        with pytest.raises(NotAllowedError, match=str(path)) as caught:
            use(URL)
        assert caught.value.hint == f"chmod 600 {path}"


def test_a_token_goes_to_the_service_that_it_is_for_and_to_no_other() -> None:
    remember(f"{URL}/", "mr_abc_secret")
    assert token_for("HTTPS://Masks.lab.example:443") == "mr_abc_secret"
    for url in (f"{URL}:8443", f"{URL}/other", "https://lab.example", "https://masks.lab.example.evil.example"):
        assert token_for(url) == ""


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(URL, "mr_abc_secret")
    monkeypatch.setenv("MASKREG_TOKEN", "mr_env_secret")
    assert token_for(URL) == "mr_env_secret"
    monkeypatch.setenv("MASKREG_TOKEN", "")
    assert token_for(URL) == "mr_abc_secret"


@pytest.mark.parametrize("token", ["two words", "two\nlines", "tökén", "\x1b[31m"])
def test_a_variable_that_holds_no_token_is_not_sent(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, token)
    with pytest.raises(UsageError, check=lambda error: error.facts["not_a_token"] == "MASKREG_TOKEN") as caught:
        token_for("https://lab.example")
    assert token not in str(caught.value)
    for use in (remember, accounts.login):
        with pytest.raises(UsageError, check=lambda error: "not_a_token" in error.facts):
            use("http://127.0.0.1:9", token)


def test_a_keyring_that_works_keeps_it_and_the_file_does_not(drawer: Drawer) -> None:
    assert remember(URL, "mr_abc_secret") == "keyring"
    assert "mr_abc" not in credentials_path().read_text()
    assert token_for(URL) == "mr_abc_secret"
    drawer.locked = True
    with pytest.raises(UnavailableError, match=URL):
        token_for(URL)
    drawer.locked = False
    assert forget(URL)
    assert drawer.passwords == {}


def test_a_keyring_that_is_locked_leaves_it_to_the_file(drawer: Drawer) -> None:
    drawer.locked = True
    assert remember(URL, "mr_abc_secret") == str(credentials_path())
    assert token_for(URL) == "mr_abc_secret"


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://masks.lab.example", id="not encrypted"),
        pytest.param("s3://bucket", id="a store"),
        pytest.param("https://user:word@masks.lab.example", id="a password"),
        pytest.param("https://masks.lab.example?token=abc", id="a query"),
        pytest.param("https://masks.lab.example:port", id="no port"),
        pytest.param("https://", id="no host"),
    ],
)
def test_what_is_not_the_url_of_a_service_gets_no_token(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        token_for(url)
    assert "word" not in str(caught.value) and "abc" not in str(caught.value)


def test_plain_http_is_for_this_machine() -> None:
    assert [service_url(f"http://{host}:8470/") for host in ("127.0.0.1", "localhost", "[::1]")] == [
        "http://127.0.0.1:8470",
        "http://localhost:8470",
        "http://[::1]:8470",
    ]


@pytest.mark.parametrize("content", ["{", "[]", '{"https://a.example": 1}', '{"https://a.example": {"token": 1}}'])
def test_a_malformed_file_is_reported_and_stays(content: str) -> None:
    path = credentials_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        remember(URL, "mr_abc_secret")
    assert str(path) in str(caught.value)
    assert path.read_text() == content

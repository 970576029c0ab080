"""Tokens for services: from the environment, from the keyring, or from a file that only its owner can read.

The file is beside the configuration file, and never holds what a keyring keeps::

    credentials.json 0600     {"https://lab.example": {"token": "mr_..."}, "http://127.0.0.1:8470": {"keyring": true}}

A token belongs to one service: scheme, host, port and path of the URL of the login. No other URL gets it.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from maskreg.disk import creating, replacing, taking_turns
from maskreg.document import canonical, parse_object
from maskreg.errors import ConfigError, DataError, NotAllowedError, UnavailableError, UsageError
from maskreg.settings.file import config_path

VARIABLE = "MASKREG_TOKEN"
"""The environment variable whose token wins, for every service."""

_KEYRING = "maskreg"
_MAX_BYTES = 1 << 20
_PORTS = {"https": 443, "http": 80}


def service_url(url: str) -> str:
    """The one form of a service's URL: lower case, without the usual port and without a slash at its end."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError("malformed URL", hint="write https://HOST[:PORT]") from error
    host = (parts.hostname or "").lower()
    if parts.scheme not in _PORTS or not host or parts.username is not None or parts.query or parts.fragment:
        raise ConfigError("not the URL of a service", hint="write https://HOST[:PORT]")
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(f"http://{host} is not this machine, so a token could be read on its way", hint="use https")
    name = f"[{host}]" if ":" in host else host
    shown = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{name}{shown}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own, which no network sees."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def credentials_path() -> Path:
    """The file of tokens, beside the configuration file; it need not exist."""
    return config_path(os.environ).with_name("credentials.json")


def check_token(token: str, name: str) -> str:
    """A token that can be sent: one line of it is a header."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{name} is not one word of letters, digits and punctuation",
            hint="copy the token again, or make another",
            not_a_token=name,
        )
    return token


def token_for(url: str) -> str:
    """The token to show to a service; empty without a login."""
    service = service_url(url)
    if token := os.environ.get(VARIABLE, "").strip():
        return check_token(token, VARIABLE)
    entry = _read(credentials_path()).get(service, {})
    if not entry.get("keyring"):
        return str(entry.get("token", ""))
    with _answering(service) as keyring:
        return keyring.get_password(_KEYRING, service) or ""


def remember(url: str, token: str) -> str:
    """Keep a token, in the keyring where one works, else in the file.

    Returns:
        Where it is kept: ``keyring``, or the path of the file.
    """
    service, path = service_url(url), credentials_path()
    check_token(token, "the token")
    with _changing(path) as entries:
        kept = _to_keyring(service, token)
        entries[service] = {"keyring": True} if kept else {"token": token}
    return "keyring" if kept else str(path)


def forget(url: str) -> bool:
    """Remove the token of a service; False when there was none."""
    service, path = service_url(url), credentials_path()
    if service not in _read(path):
        return False
    with _changing(path) as entries:
        if entries.pop(service, {}).get("keyring"):
            with _answering(service) as keyring:
                if keyring.get_password(_KEYRING, service) is not None:
                    keyring.delete_password(_KEYRING, service)
    return True


def known_services() -> list[str]:
    """The services with a stored token, by URL."""
    return sorted(_read(credentials_path()))


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise NotAllowedError(f"{path}: others can read it", hint=f"chmod 600 {shlex.quote(str(path))}")
            content = parse_object(file.read(_MAX_BYTES + 1), str(path), max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return {}
    except DataError as error:
        raise ConfigError(
            error.message, hint=f"rm {shlex.quote(str(path))}, then log in again", token_of="URL"
        ) from error
    except OSError as error:
        if isinstance(error, NotAllowedError):
            raise
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    if not all(isinstance(entry, dict) and isinstance(entry.get("token", ""), str) for entry in content.values()):
        raise ConfigError(f"{path}: malformed", hint=f"rm {shlex.quote(str(path))}, then log in again", token_of="URL")
    return content


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, dict[str, Any]]]:
    with creating(path), taking_turns(path.parent):
        entries = _read(path)
        yield entries
        with replacing(path, mode=0o600) as file:
            file.write(canonical(entries))


def _to_keyring(service: str, token: str) -> bool:
    if find_spec("keyring") is None:
        return False
    import keyring
    from keyring.errors import KeyringError

    try:
        # Those that keep nothing, or fail, say so by their priority.
        if keyring.get_keyring().priority < 1:
            return False
        keyring.set_password(_KEYRING, service, token)
    except KeyringError:
        return False  # such as one that is locked: the file will do
    return True


@contextmanager
def _answering(service: str) -> Iterator[ModuleType]:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the token of {service} is in the keyring, which needs the package keyring", hint="pip install keyring"
        ) from error
    try:
        yield keyring
    except KeyringError as error:
        raise UnavailableError(
            f"the keyring that has the token of {service} does not answer ({error})",
            hint=f"unlock it, or set {VARIABLE}",
        ) from error

"""The configuration file: where it is, and its content, checked."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from maskreg.disk import replacing
from maskreg.errors import ConfigError
from maskreg.settings.keys import KEYS, KNOWN_KEYS_HINT
from maskreg.settings.remotes import REMOTE_KEYS, Remote, parse_remote, unknown_remote

if TYPE_CHECKING:
    import tomlkit


def config_path(env: Mapping[str, str], flags: Mapping[str, str]) -> Path:
    """The file that ``--config`` or ``MASKREG_CONFIG`` names, else the user's own; it need not exist."""
    text = flags.get("config") or env.get("MASKREG_CONFIG")
    return Path(text).expanduser().absolute() if text else platformdirs.user_config_path("maskreg") / "config.toml"


def read_file(path: Path) -> dict[str, Any]:
    """The file's settings by key, ``remotes`` as values of ``Remote`` by name; a missing file is an empty one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {"remotes": {}}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_file(data, path)


def parse_file(data: bytes, path: Path) -> dict[str, Any]:
    """Parse and check the content of a configuration file; an empty text counts as not set."""
    try:
        content: dict[str, Any] = tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML ({error})") from error
    for key, value in content.items():
        if key == "remotes":
            continue
        if key not in KEYS:
            raise ConfigError(f"{path}: unknown key {key!r}", hint=KNOWN_KEYS_HINT)
        if type(value) is not KEYS[key].kind:
            raise ConfigError(f"{path}: {key}: {value!r} is not of type {KEYS[key].kind.__name__}")
        if value != "":
            KEYS[key].read(value if isinstance(value, list) else str(value), f"{path}: {key}")
    remotes = content.get("remotes", {})
    if not isinstance(remotes, dict):
        raise ConfigError(f"{path}: remotes: tables called [remotes.NAME] were expected")
    content["remotes"] = {name: parse_remote(name, table, path) for name, table in remotes.items()}
    return {key: value for key, value in content.items() if value != ""}


def set_value(path: Path, key: str, value: str) -> None:
    """Set one key of the configuration file, or remove it with an empty value."""
    table, _, leaf = key.rpartition(".")
    if not table and key in KEYS:
        typed = KEYS[key].parse(value, key) if value else None
        stored = list(typed) if isinstance(typed, tuple) else str(typed) if isinstance(typed, Path) else typed
        _edit(path, lambda document: _assign(document, key, stored))
        return
    name = table.removeprefix("remotes.")
    if not table.startswith("remotes.") or leaf not in REMOTE_KEYS:
        raise ConfigError(f"{path}: {key!r} is not a setting", hint=KNOWN_KEYS_HINT)
    if name not in (remotes := read_file(path)["remotes"]):
        raise unknown_remote(name, remotes)
    _edit(path, lambda document: _assign(_remote_table(document, name), leaf, value or None))


def add_remote(path: Path, remote: Remote) -> None:
    """Write a new remote, as :func:`checked` returns it, into the configuration file."""
    if remote.name in read_file(path)["remotes"]:
        raise ConfigError(
            f"{path}: there is a remote called {remote.name!r} already",
            hint="choose another name, or remove that one",
            taken_remote=remote.name,
        )
    table = checked(remote).table()
    _edit(path, lambda document: _remote_table(document, remote.name).update(table))


def checked(remote: Remote) -> Remote:
    """A remote as reading the configuration file would return it; a relative path becomes absolute."""
    # An empty path would be the working directory.
    url = remote.url if "://" in remote.url or not remote.url else str(Path(remote.url).expanduser().absolute())
    return parse_remote(remote.name, replace(remote, url=url).table(), "the new remote")


def remove_remote(path: Path, name: str) -> None:
    """Remove a remote from the configuration file, and ``default_remote`` when that names it."""
    if name not in (remotes := read_file(path)["remotes"]):
        raise unknown_remote(name, remotes)

    def edit(document: tomlkit.TOMLDocument) -> None:
        del document["remotes"][name]
        if document.get("default_remote") == name:
            del document["default_remote"]

    _edit(path, edit)


def _assign(table: Any, key: str, value: object) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _remote_table(document: tomlkit.TOMLDocument, name: str) -> Any:
    import tomlkit

    if "remotes" not in document:
        # A super table has no header of its own: only [remotes.NAME] is written.
        document["remotes"] = tomlkit.table(is_super_table=True)
    remotes: Any = document["remotes"]
    if name not in remotes:
        remotes[name] = tomlkit.table()
    return remotes[name]


def _edit(path: Path, change: Callable[[tomlkit.TOMLDocument], None]) -> None:
    import tomlkit

    target = path.resolve()  # a link from a dot-files folder stays a link
    try:
        document = tomlkit.parse(target.read_text("utf-8") if target.exists() else "")
        change(document)
        data = tomlkit.dumps(document).encode()
        parse_file(data, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            file.write(data)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error})") from error

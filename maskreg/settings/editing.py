"""Edits of the configuration file that keep its comments, its order, its mode and its links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskreg.disk import replacing
from maskreg.errors import ConfigError
from maskreg.settings.file import parse_file, read_file
from maskreg.settings.keys import KEYS, KNOWN_KEYS_HINT
from maskreg.settings.remotes import REMOTE_KEYS, Remote, parse_remote, unknown_remote

if TYPE_CHECKING:
    import tomlkit


def set_value(path: Path, key: str, value: str) -> None:
    """Set one key of the configuration file, or remove it with an empty value.

    Args:
        path: the file; created when there is none.
        key: a top-level key or ``remotes.NAME.KEY``.
        value: text; converted to the key's type.

    Raises:
        ConfigError: an unknown key, an invalid value, or a file that was invalid before.
    """
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
    """Write a new remote, as :func:`checked` returns it, into the configuration file.

    Raises:
        ConfigError: the name is taken or malformed, a value is invalid, a URL holds a password.
    """
    if remote.name in read_file(path)["remotes"]:
        raise ConfigError(
            f"{path}: there is a remote called {remote.name!r} already",
            hint="choose another name, or remove that one",
            taken_remote=remote.name,
        )
    table = checked(remote).table()
    _edit(path, lambda document: _remote_table(document, remote.name).update(table))


def checked(remote: Remote) -> Remote:
    """A remote as reading the configuration file would return it; a relative path becomes absolute.

    Raises:
        ConfigError: a malformed name, an invalid value, a password in a URL.
    """
    # An empty path would be the working directory.
    url = remote.url if "://" in remote.url or not remote.url else str(Path(remote.url).expanduser().absolute())
    return parse_remote(remote.name, replace(remote, url=url).table(), "the new remote")


def remove_remote(path: Path, name: str) -> None:
    """Remove a remote from the configuration file, and ``default_remote`` when that names it.

    Raises:
        ConfigError: there is no such remote.
    """
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

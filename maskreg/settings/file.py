"""The configuration file: its keys, where it is, and its content, checked.

Of each top-level setting: its environment variable, its type in the file, its parser and its default.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from maskreg.disk import replacing, taking_turns
from maskreg.errors import ConfigError
from maskreg.ref import WORD
from maskreg.settings.remotes import REMOTE_KEYS, Remote, default_jobs, parse_name, parse_remote, unknown_remote

if TYPE_CHECKING:
    import tomlkit


_FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}

_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?([KMGTkmgt]?)B?")


@dataclass(frozen=True)
class Key:
    """One top-level setting.

    Attributes:
        name: its key in the file.
        variable: its environment variable.
        kind: its type in the file; a list there is a tuple of texts in Python, joined by commas in other places.
        parse: a text and its origin (for messages) to a value.
        default: makes the default.
    """

    name: str
    variable: str
    kind: type
    parse: Callable[[str, str], Any]
    default: Callable[[], Any]

    def choose(self, env: Mapping[str, str], file: Mapping[str, Any], path: Path) -> tuple[Any, str]:
        """The value and its origin: the environment wins over the file, that over the default."""
        if text := env.get(self.variable):
            try:
                return self.parse(text, self.variable), self.variable
            except ConfigError as error:
                error.facts, error.hint = {}, error.hint or f"unset {self.variable}, or correct it"  # not the file
                raise
        if self.name in file:
            return self.read(file[self.name], f"{path}: {self.name}"), str(path)
        return self.default(), "default"

    def read(self, value: Any, origin: str) -> Any:
        """The value of the setting from what the file holds."""
        if isinstance(value, list):
            return self.parse(",".join(map(str, value)), origin)
        return self.parse(value, origin) if isinstance(value, str) else value


def _path(text: str, origin: str) -> Path:
    path = Path(text).expanduser()
    # On a command line a relative path is fine; in a file it would depend on the directory one happens to be in.
    if origin.endswith(": home") and not path.is_absolute():
        raise ConfigError(f"{origin}: {text!r} is not an absolute path")
    return path.absolute()


def _number(text: str, origin: str, *, low: int, high: int, **facts: Any) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise ConfigError(f"{origin}: {text!r} is not a number from {low} to {high:,}", **facts)
    return int(text)


def _flag(text: str, origin: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ConfigError(f"{origin}: {text!r} is neither true nor false")
    return _FLAGS[text.lower()]


def _size(text: str, origin: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from error


def parse_size(text: str) -> int:
    """A number of bytes, such as ``50GB`` or ``1.5TB``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write 50GB, 500MB or 1.5TB")
    whole, _, part = match[1].partition(".")
    # In floats, 1.001K is 1000.9999999999999.
    size, rest = divmod(int(whole + part) * 1000 ** " KMGT".index((match[2] or " ").upper()), 10 ** len(part))
    if rest:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size)


def _projects(text: str, origin: str) -> tuple[str, ...]:
    projects = tuple(part.strip() for part in text.split(",") if part.strip())
    for project in projects:
        if not re.fullmatch(WORD, project):
            raise ConfigError(f"{origin}: {project!r} is not a project", hint="write projects as in team,paper")
    return tuple(dict.fromkeys(projects))


KEYS = {
    key.name: key
    for key in (
        Key("home", "MASKREG_HOME", str, _path, lambda: platformdirs.user_data_path("maskreg")),
        Key("default_remote", "MASKREG_REMOTE", str, parse_name, str),
        Key("jobs", "MASKREG_JOBS", int, partial(_number, low=1, high=256, setting="jobs", new_value=8), default_jobs),
        Key("offline", "MASKREG_OFFLINE", bool, _flag, bool),
        Key("cache_size", "MASKREG_CACHE_SIZE", int, _size, int),
        Key("immutable_projects", "MASKREG_IMMUTABLE_PROJECTS", list, _projects, tuple),
    )
}
"""The top-level settings by name."""


def as_text(value: object) -> str:
    """A setting's value as the command line and the environment write it."""
    return ",".join(value) if isinstance(value, tuple) else str(value)


KNOWN_KEYS_HINT = f"known: {', '.join(KEYS)}, remotes.NAME.({'|'.join(REMOTE_KEYS)})"


_LONGEST = timedelta(weeks=5_200)
_DIGITS = 20
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> timedelta:
    """A length of time, such as ``7d``, ``12h``, ``30m`` or ``0s``."""
    match = re.fullmatch(r"([0-9]+)([smhdw])", text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 7d, 12h, 30m or 0s")
    unit = timedelta(**{_UNITS[match[2]]: 1})
    # Dates begin with the year 1, so a longer time before now might not be one.
    if len(match[1]) > _DIGITS or int(match[1]) > _LONGEST / unit:
        raise ValueError(f"{text[:_DIGITS]!r} is more than {_LONGEST.days // 7}w")
    return int(match[1]) * unit


def config_path(env: Mapping[str, str]) -> Path:
    """The file that ``MASKREG_CONFIG`` names, else the user's own; it need not exist."""
    text = env.get("MASKREG_CONFIG")
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
        raise ConfigError(f"{path}: not TOML ({error})", hint="correct that line, or move the file away") from error
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
    table = checked(remote).table()

    def edit(document: tomlkit.TOMLDocument) -> None:
        if remote.name in document.get("remotes", {}):
            raise ConfigError(
                f"{path}: there is a remote called {remote.name!r} already",
                hint="choose another name, or remove that one",
                taken_remote=remote.name,
            )
        _remote_table(document, remote.name).update(table)

    _edit(path, edit)


def checked(remote: Remote) -> Remote:
    """A remote as reading the configuration file would return it; a relative path becomes absolute."""
    # An empty path would be the working directory.
    url = remote.url if "://" in remote.url or not remote.url else str(Path(remote.url).expanduser().absolute())
    return parse_remote(remote.name, replace(remote, url=url).table(), "the new remote")


def remove_remote(path: Path, name: str) -> None:
    """Remove a remote from the configuration file, and ``default_remote`` when that names it."""
    if name not in (remotes := read_file(path)["remotes"]):
        raise unknown_remote(name, remotes, can_be_added=False)

    def edit(document: tomlkit.TOMLDocument) -> None:
        document.get("remotes", {}).pop(name, None)
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
        with taking_turns(target.parent):
            document = tomlkit.parse(target.read_text("utf-8") if target.exists() else "")
            change(document)
            data = tomlkit.dumps(document).encode()
            parse_file(data, path)
            with replacing(target) as file:
                file.write(data)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error})") from error

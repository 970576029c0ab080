"""The top-level settings: for each its environment variable, its type in the file, its parser and its default."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import platformdirs

from maskreg.engine import parse_engine
from maskreg.errors import ConfigError
from maskreg.settings.remotes import REMOTE_KEYS, default_jobs, parse_name

_MOST_WORKERS = 10_000

_FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}

# As in references, which settings know nothing of.
_PROJECT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")


_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([KMGTkmgt]?)B?")


@dataclass(frozen=True)
class Key:
    """One top-level setting.

    Attributes:
        name: its key in the file; the flag is ``--name``, with hyphens.
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

    def choose(
        self, flags: Mapping[str, str], env: Mapping[str, str], file: Mapping[str, Any], path: Path
    ) -> tuple[Any, str]:
        """The value and its origin: a flag wins over the environment, that over the file, that over the default."""
        if text := flags.get(self.name):
            flag = f"--{self.name.replace('_', '-')}"
            return self.parse(text, flag), flag
        if text := env.get(self.variable):
            return self.parse(text, self.variable), self.variable
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


def _jobs(text: str, origin: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 256:
        raise ConfigError(f"{origin}: {text!r} is not a number from 1 to 256", setting="jobs", new_value=8)
    return int(text)


def _workers(text: str, origin: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _MOST_WORKERS:
        raise ConfigError(f"{origin}: {text!r} is not a number from 0 to {_MOST_WORKERS:,}")
    return int(text)


def _flag(text: str, origin: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ConfigError(f"{origin}: {text!r} is neither true nor false")
    return _FLAGS[text.lower()]


def parse_size(text: str, origin: str) -> int:
    """A number of bytes, such as ``50GB`` or ``1.5TB``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{origin}: {text!r} is not a size", hint="write 50GB, 500MB or 1.5TB")
    return int(float(match[1]) * 1000 ** " KMGT".index((match[2] or " ").upper()))


def _projects(text: str, origin: str) -> tuple[str, ...]:
    projects = tuple(part.strip() for part in text.split(",") if part.strip())
    for project in projects:
        if not _PROJECT.fullmatch(project):
            raise ConfigError(f"{origin}: {project!r} is not a project", hint="write projects as in team,paper")
    return tuple(dict.fromkeys(projects))


KEYS = {
    key.name: key
    for key in (
        Key("home", "MASKREG_HOME", str, _path, lambda: platformdirs.user_data_path("maskreg")),
        Key("default_remote", "MASKREG_REMOTE", str, parse_name, str),
        Key("jobs", "MASKREG_JOBS", int, _jobs, default_jobs),
        Key("engine", "MASKREG_ENGINE", str, parse_engine, lambda: "threads"),
        Key("workers", "MASKREG_WORKERS", int, _workers, int),
        Key("offline", "MASKREG_OFFLINE", bool, _flag, bool),
        Key("cache_size", "MASKREG_CACHE_SIZE", int, parse_size, int),
        Key("immutable_projects", "MASKREG_IMMUTABLE_PROJECTS", list, _projects, tuple),
    )
}
"""The top-level settings by name."""


def as_text(value: object) -> str:
    """A setting's value as the command line and the environment write it."""
    return ",".join(value) if isinstance(value, tuple) else str(value)


KNOWN_KEYS_HINT = f"known: {', '.join(KEYS)}, remotes.NAME.({'|'.join(REMOTE_KEYS)})"


_LONGEST = timedelta(weeks=5_200)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> timedelta:
    """A length of time, such as ``7d``, ``12h``, ``30m`` or ``0s``."""
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 7d, 12h, 30m or 0s")
    length = timedelta(**{_UNITS[match[2]]: int(match[1])})
    if length > _LONGEST:
        # Dates begin with the year 1, so a longer time before now may not be one.
        raise ValueError(f"{text!r} is more than {_LONGEST.days // 7}w")
    return length

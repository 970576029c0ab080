"""The configuration file: where it is, and its content, checked."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

from maskreg.errors import ConfigError
from maskreg.settings.keys import KEYS, KNOWN_KEYS_HINT
from maskreg.settings.remotes import parse_remote


def config_path(env: Mapping[str, str], flags: Mapping[str, str]) -> Path:
    """The file that ``--config`` or ``MASKREG_CONFIG`` names, else the user's own; it need not exist."""
    text = flags.get("config") or env.get("MASKREG_CONFIG")
    return Path(text).expanduser().absolute() if text else platformdirs.user_config_path("maskreg") / "config.toml"


def read_file(path: Path) -> dict[str, Any]:
    """The file's settings by key, ``remotes`` as values of ``Remote`` by name; a missing file is an empty one.

    Raises:
        ConfigError: the file cannot be read, or :func:`parse_file` refuses it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {"remotes": {}}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_file(data, path)


def parse_file(data: bytes, path: Path) -> dict[str, Any]:
    """Parse and check the content of a configuration file; an empty text counts as not set.

    Raises:
        ConfigError: not TOML, an unknown key, or a value of the wrong type or out of range.
    """
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

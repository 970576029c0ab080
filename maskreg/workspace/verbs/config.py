"""Config: settings, where each comes from, and changing them in the configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from maskreg.errors import NotFoundError
from maskreg.result import Result
from maskreg.settings import Settings, set_value
from maskreg.workspace.verbs.remotes import check_store
from maskreg.workspace.workspace import Workspace, opened


@dataclass(frozen=True)
class Setting(Result):
    """The value of one setting.

    Attributes:
        key: dotted key, such as ``jobs`` or ``remotes.lab.url``.
        value: its value as text.
        origin: an environment variable, the path of the configuration file, or ``default``.
    """

    key: str
    value: str
    origin: str


@dataclass(frozen=True)
class Written(Result):
    """A change of the configuration file.

    Attributes:
        key: the key that was written.
        value: its value as text; None when it was removed.
    """

    key: str
    value: str | None
    path: Path


def show(*, workspace: Workspace | None = None) -> tuple[Setting, ...]:
    """Every setting, and where it comes from."""
    with opened(workspace) as space:
        return tuple(Setting(*row) for row in space.settings.items())


def get(key: str, *, workspace: Workspace | None = None) -> Setting:
    """One setting.

    Raises:
        NotFoundError: the key is not set.
    """
    for setting in show(workspace=workspace):
        if setting.key == key:
            return setting
    raise NotFoundError(f"{key!r} is not set", setting=key)


def set(key: str, value: str | int | Path, *, workspace: Workspace | None = None) -> Written:
    """Write a setting to the configuration file. Comments in the file are kept.

    Args:
        key: ``home``, ``default_remote``, ``jobs``, ``offline``, ``cache_size``, ``immutable_projects`` or
            ``remotes.NAME.KEY``.
        value: its value; an empty text removes the key.

    Raises:
        ConfigError: an unknown key, a malformed value, a URL that no store has, or a remote that there is not.
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    with opened(workspace) as space:
        path = space.settings.config_path
        if text:
            _check(space.settings, key, text)
        set_value(path, key, text)
        space.reload()
    return Written(key, text or None, path)


def _check(settings: Settings, key: str, text: str) -> None:
    # What is well formed and would make the next command fail.
    table, _, leaf = key.rpartition(".")
    if key == "default_remote":
        settings.remote(text)
    elif leaf == "url" and table.removeprefix("remotes.") in settings.remotes:
        check_store(text, setting=key)


def unset(key: str, *, workspace: Workspace | None = None) -> Written:
    """Remove a setting from the configuration file.

    Raises:
        ConfigError: an unknown key.
    """
    return set(key, "", workspace=workspace)

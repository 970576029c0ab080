"""The folder of a local registry: whether it can be one, before its emptiness is taken for an answer."""

from __future__ import annotations

import os
from pathlib import Path

from maskreg.disk import nearest_existing
from maskreg.errors import ConfigError


def check_home(home: Path) -> None:
    """Refuse a home that is no folder and cannot become one.

    Raises:
        ConfigError: it is a file, or lies below one, or it is not there and may not be made.
    """
    there = nearest_existing(Path(os.path.realpath(home)))
    if not there.is_dir():
        reason = f"{there} is not a directory"
    elif not home.exists() and not os.access(there, os.W_OK | os.X_OK):
        reason = f"it is not there, and {there} cannot be written"
    else:
        return
    raise ConfigError(
        f"MASKREG_HOME: {home} cannot hold a registry: {reason}", hint="export MASKREG_HOME=/path/to/a/directory"
    )

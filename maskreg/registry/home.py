"""The directory of a local registry: whether it can hold one."""

from __future__ import annotations

import os
from pathlib import Path

from maskreg.disk import nearest_existing
from maskreg.errors import ConfigError


def check_home(home: Path) -> None:
    """Refuse a directory that does not exist and cannot be made; it would pass for an empty registry.

    Raises:
        ConfigError: it is no directory, or cannot become one.
    """
    existing = nearest_existing(Path(os.path.realpath(home)))
    if not existing.is_dir():
        reason = f"{existing} is not a directory"
    elif not home.exists() and not os.access(existing, os.W_OK | os.X_OK):
        reason = f"it does not exist, and {existing} is not writable"
    else:
        return
    raise ConfigError(
        f"MASKREG_HOME: {home} cannot hold a registry: {reason}", hint="export MASKREG_HOME=/path/to/a/directory"
    )

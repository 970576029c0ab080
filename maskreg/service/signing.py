"""The key that a server signs with: its own, one that it was started with, or none."""

from __future__ import annotations

import shlex
from pathlib import Path

from maskreg.errors import ConfigError
from maskreg.registry.trust.machine import PrivateKeys, read_private_key, service_key
from maskreg.settings import Settings
from maskreg.signature import Signer


def signer_of(signing_key: str, settings: Settings, remote: str | None) -> Signer | None:
    """What signs for people who have tokens and no key."""
    if signing_key == "none":
        return None
    if not signing_key:
        return service_key(settings.home) if remote is None else None
    path = Path(signing_key)
    try:
        private = read_private_key(path)
    except OSError as error:
        hint = f"ls -l {shlex.quote(str(path))}"
        raise ConfigError(f"{path}: the signing key cannot be read: {error.strerror}", hint=hint) from error
    PrivateKeys(settings.home).add(private)
    return private

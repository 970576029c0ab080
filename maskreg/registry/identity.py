"""The identity of a registry, ``maskreg.json`` at the root of its store, and the identity of its writer."""

from __future__ import annotations

import getpass
import os
import socket
import uuid
from pathlib import Path

from maskreg.digest import sealed
from maskreg.disk import nearest_existing
from maskreg.document import parse_object
from maskreg.errors import ConfigError, DataError, FormatError, NotFoundError, UnavailableError
from maskreg.extras import upgrade_command
from maskreg.store.base import Store


def check_home(home: Path) -> None:
    """Refuse a directory that does not exist and cannot be made; it would pass for an empty registry."""
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


IDENTITY = "maskreg.json"
IDENTITY_HINT = f"restore {IDENTITY} from a copy of the store; other registries know this one by its uuid"
"""The next step when the identity is damaged or missing."""

VERSION = 1
_SCHEMA = "maskreg.registry"
_MAX_BYTES = 64 << 10
_WHO_CHARS = 200


def read_identity(store: Store) -> str:
    """The registry's uuid; empty when the store holds no registry yet."""
    try:
        data = store.get(IDENTITY, max_bytes=_MAX_BYTES)
    except NotFoundError:
        return ""
    where = f"{store.url}: {IDENTITY}"
    try:
        value = parse_object(data, where, max_bytes=_MAX_BYTES)
        kind, _, version = str(value["schema"]).partition("/")
        number = int(version) if version.isascii() and version.isdigit() else 0
        identity = str(uuid.UUID(value["uuid"]))
    except (DataError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{where}: not the identity of a registry", hint=IDENTITY_HINT) from error
    if kind != _SCHEMA or number < 1:
        raise FormatError(f"{where}: not the identity of a registry", hint=IDENTITY_HINT)
    if number > VERSION:
        raise ConfigError(
            f"{where}: the registry has format {number}; this version knows up to {VERSION}", hint=upgrade_command()
        )
    if sealed(value) != data:
        raise FormatError(f"{where}: its bytes do not match its seal", hint=IDENTITY_HINT)
    return identity


def check_same(store: Store, uuid: str) -> None:
    """Ask a store again whether it holds the registry that it held before."""
    present = read_identity(store)
    if uuid and present != uuid:
        raise UnavailableError(
            f"{store.url} held the registry {uuid} and holds {present or 'none'} now",
            hint="put it back, such as by mounting its disk, or restart the server",
        )


def ensure_identity(store: Store) -> str:
    """The registry's uuid, created now when it has none."""
    if identity := read_identity(store):
        return identity
    fresh = str(uuid.uuid4())
    # Sealed: a uuid with one digit changed is a uuid, and another registry's.
    store.create(IDENTITY, sealed({"schema": f"{_SCHEMA}/{VERSION}", "uuid": fresh}))
    # Another writer might have been first, and the answer might be lost: what is stored counts.
    return read_identity(store)


def who() -> str:
    """``user@host``, as the ref log records its writers."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in a container
        user = "unknown"
    # The log refuses what cannot be printed, and a user can be called anything: USER is read before the user id.
    return "".join(c if c.isprintable() else "?" for c in f"{user}@{socket.gethostname()}")[:_WHO_CHARS]

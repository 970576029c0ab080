"""The private keys of this machine: files of their owner alone, outside of everything that a store reads or lists.

::

    <home>/.private/<64 hex digits of the public key>.pem      PKCS #8, mode 0600, in a folder of mode 0700

``.private`` can be no part of a store's key (:mod:`maskreg.store.keys`), so no server that serves the registry in this
folder, and nothing that copies it object by object, can pass a private key on.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from maskreg.disk import replacing
from maskreg.errors import CannotCreateError, FormatError, OutputExistsError, RefusedError
from maskreg.signature import PrivateKey, PublicKey
from maskreg.store.keys import PRIVATE

_MAX_BYTES = 64 << 10
_SERVICE = "service"


class PrivateKeys:
    """The private keys in one home.

    Args:
        home: directory of the local registry.
    """

    def __init__(self, home: Path) -> None:
        self._folder = home / PRIVATE

    def path(self, key: PublicKey) -> Path:
        """The file of a private key, which need not exist."""
        return self._folder / f"{key.hex}.pem"

    def find(self, key: PublicKey) -> PrivateKey | None:
        """The private key to a public one; None when it is not here.

        Raises:
            RefusedError: others than its owner may read the file, or this user may not.
            FormatError: the file holds something else.
            ConfigError: the package ``cryptography`` is not installed.
        """
        path = self.path(key)
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            private = read_private_key(path)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise RefusedError(f"{path}: {error.strerror}", hint=f"ls -l {path}") from error
        if mode & 0o077:
            raise RefusedError(f"{path}: others may read this private key", hint=f"chmod 600 {path}")
        if private.key != key:
            raise FormatError(f"{path}: the private key of {private.key.short}, and not of {key.short}")
        return private

    def add(self, private: PrivateKey) -> Path:
        """Keep a private key; returns its file.

        Raises:
            CannotCreateError, RefusedError: it cannot be written.
        """
        path = self.path(private.key)
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except PermissionError as error:
            raise RefusedError(f"{self._folder}: {error.strerror}") from error
        except OSError as error:
            raise CannotCreateError(f"{self._folder}: {error.strerror}") from error
        write_private_key(private, path)
        return path

    def __iter__(self) -> Iterator[PublicKey]:
        for path in sorted(self._folder.glob("*.pem")):
            try:
                yield PublicKey(f"ed25519:{path.stem}")
            except ValueError:
                continue


def service_key(home: Path) -> PrivateKey:
    """The key of the service of a home, made when there is none: what signs for people who have tokens and no key.

    It is a private key among the others, so commands that are run in this home sign with it, too.

    Raises:
        CannotCreateError, RefusedError: it cannot be read or written.
        FormatError: the files hold something else.
        ConfigError: the package ``cryptography`` is not installed.
    """
    keys, name = PrivateKeys(home), home / PRIVATE / _SERVICE
    if not name.exists():
        fresh = PrivateKey.generate()
        path = keys.add(fresh)
        try:
            with replacing(name, mode=0o600, force=False) as file:
                file.write(fresh.key.encode())
        except OutputExistsError:
            # Another process of the service was first.
            path.unlink()
    try:
        key = PublicKey(name.read_text("ascii"))
    except ValueError as error:
        raise FormatError(f"{name}: not the name of a key") from error
    private = keys.find(key)
    if private is None:
        raise RefusedError(f"{name} names a private key that is not there", hint=f"ls -l {name.parent}")
    return private


def read_private_key(path: Path) -> PrivateKey:
    """Read a private key from a file.

    Raises:
        FormatError: it holds no private key.
        OSError: it cannot be read.
        ConfigError: the package ``cryptography`` is not installed.
    """
    with path.open("rb") as file:
        return PrivateKey.from_pem(file.read(_MAX_BYTES), str(path))


def write_private_key(private: PrivateKey, path: Path) -> None:
    """Write a private key to a file that its owner alone can read.

    Raises:
        CannotCreateError: it cannot be written.
    """
    with replacing(path, mode=0o600) as file:
        file.write(private.to_pem())
